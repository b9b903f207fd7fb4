package main

import "fmt"

// shape is a list of pieces.
type shape struct{ pieces, bytes int }

const (
	pageShift = 12
	pageSize  = 1 << pageShift
)

var defaultShapes = []shape{{1, pageSize}, {16, 16 * pageSize}, {64, 64 * pageSize}, {256, 256 * pageSize}, {1, 1 << 20}}

// lengths cuts the shape's bytes into its pieces, as evenly as can be.
func (s shape) lengths() []int {
	all := make([]int, s.pieces)
	for i := range all {
		all[i] = s.bytes / s.pieces
		if i < s.bytes%s.pieces {
			all[i]++
		}
	}
	return all
}

// work is what one row measures.
type work struct {
	device, op string
	shape
}

func (w work) String() string {
	return fmt.Sprintf("%s, %s, pieces %d, bytes %d", w.device, w.op, w.pieces, w.bytes)
}

// shapes are those that the options ask for.
func (o *options) shapes() []shape {
	if len(o.pieces) == 0 && o.bytes == 0 {
		return defaultShapes
	}
	pieces := o.pieces
	if len(pieces) == 0 {
		pieces = []int{1}
	}
	var all []shape
	for _, n := range pieces {
		s := shape{n, n * pageSize}
		if o.bytes > 0 {
			s.bytes = o.bytes
		}
		all = append(all, s)
	}
	return all
}

// work lists the rows in order.
func (o *options) work() []work {
	var all []work
	for _, device := range o.devices {
		for _, op := range o.ops {
			for _, s := range o.shapes() {
				all = append(all, work{device, op, s})
			}
		}
	}
	return all
}
