//go:build ibverbs && linux && cgo

package postcost

// #include "stub.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"rdmarw/internal/rawverbs"
	"rdmarw/transport"
	_ "rdmarw/transport/ibverbs" // sets rawverbs
)

const (
	batches = 41
	perTurn = 2000 // posts
)

// Stub measures posts to the provider that copies.
func Stub() (Result, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var raw [3]*C.struct_ibv_qp // of ours, of C, of the filler
	for i := range raw {
		if raw[i] = C.pc_stub(); raw[i] == nil {
			return Result{}, transport.ErrNoMemory
		}
		defer C.pc_free(raw[i])
	}
	todo := make([]transfer, Chain)
	for i := range todo {
		todo[i] = transfer{local: C.uint64_t(0x7f0000000000 + i*8192), remote: C.uint64_t(0x7e0000000000 + i*4096),
			length: 4096, lkey: 0x1234, rkey: C.uint32_t(0x5678 + i)}
	}
	qp, err := rawverbs.Wrap(unsafe.Pointer(raw[0]), transport.QueueCaps{MaxSendWR: 1024, MaxSendSGE: 4, MaxInline: 64})
	if err != nil {
		return Result{}, err
	}
	o := &ours{qp: qp, todo: todo}
	f := newFiller(unsafe.Pointer(raw[2]), todo)
	defer f.free()

	var m measured
	turns := []turn{
		{&m.ours, o.run},
		{&m.c, func(n int) (time.Duration, error) { return byC(unsafe.Pointer(raw[1]), todo, n) }},
		{&m.crossing, o.crossing},
		{&m.fill, f.run},
	}
	for batch := range batches {
		for i := range turns { // another one begins each time
			if err := turns[(i+batch)%len(turns)].take(perTurn); err != nil {
				return Result{}, err
			}
		}
	}
	if a, b, c := C.pc_sum(raw[0]), C.pc_sum(raw[1]), C.pc_sum(raw[2]); a != b || a != c {
		return Result{}, fmt.Errorf("not the same was posted: %x, %x, %x", a, b, c)
	}
	return m.result("stub", true), nil
}

// measured are nanoseconds of each post, a number for each batch.
type measured struct{ ours, c, crossing, fill []float64 }

type turn struct {
	out *[]float64
	run func(posts int) (time.Duration, error)
}

func (t turn) take(posts int) error {
	d, err := t.run(posts)
	if err != nil {
		return errors.Join(errPost, err)
	}
	*t.out = append(*t.out, float64(d)/float64(posts))
	return nil
}

// result takes medians; the ratio is that of each batch's own numbers.
func (m *measured) result(device string, withoutCrossing bool) Result {
	ratios := make([]float64, len(m.c))
	for i := range ratios {
		ours := m.ours[i]
		if withoutCrossing {
			ours -= m.crossing[i]
		}
		ratios[i] = ours / m.c[i]
	}
	return Result{
		Device: device, OursNS: median(m.ours), CNS: median(m.c), CrossingNS: median(m.crossing), FillNS: median(m.fill),
		Ratio: median(ratios),
	}
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
