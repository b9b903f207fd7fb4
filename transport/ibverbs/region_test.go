//go:build ibverbs && linux && cgo

package ibverbs

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestRegions(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		_, err := d.NewRegion(transport.RegionConfig{})
		require.ErrorIs(t, err, transport.ErrInvalid)
		_, err = d.NewRegion(transport.RegionConfig{Size: -1})
		require.ErrorIs(t, err, transport.ErrInvalid)
		_, err = d.NewRegion(transport.RegionConfig{Size: int(^uint(0) >> 1)})
		require.Error(t, err)
		_, err = d.NewRegion(transport.RegionConfig{Size: 1, Access: transport.RemoteRead})
		require.ErrorIs(t, err, transport.ErrInvalid)
		_, err = d.WrapRegion(0, 1, 0, nil)
		require.ErrorIs(t, err, transport.ErrInvalid)
		_, err = d.WrapRegion(^uintptr(0), 2, 0, nil)
		require.ErrorIs(t, err, transport.ErrInvalid)

		r, err := d.NewRegion(transport.RegionConfig{Size: 5000})
		require.NoError(t, err)
		require.Len(t, r.Bytes(), 5000)
		require.Zero(t, r.Addr()%uint64(unix.Getpagesize()))
		p, err := d.NewPD()
		require.NoError(t, err)
		require.NoError(t, p.RemoveRegion(r))
		require.NoError(t, p.AddRegion(r))
		require.ErrorIs(t, p.AddRegion(r), transport.ErrBusy)
		require.ErrorIs(t, r.Close(), transport.ErrBusy)
		require.ErrorIs(t, p.Close(), transport.ErrBusy)

		s, err := p.NewRegistration(transport.SyncMR, 0)
		require.NoError(t, err)
		list := []transport.Piece{r.Piece(0, 100), r.Piece(100, 100), r.Piece(300, 100)}
		_, err = s.Map(transport.Mapping{List: list, Access: transport.LocalWrite})
		require.ErrorIs(t, err, transport.ErrAccess, "the region is not writable")
		_, err = s.Map(transport.Mapping{List: list, Access: transport.RemoteWrite})
		require.ErrorIs(t, err, transport.ErrInvalid, "remote write needs local write")
		ext, err := s.Map(transport.Mapping{List: list, Access: transport.RemoteRead})
		require.NoError(t, err)
		require.EqualValues(t, 200, ext.Len)
		require.Equal(t, transport.Cursor{Piece: 2}, ext.Next)
		require.NotZero(t, s.LKey(0))
		require.NotZero(t, s.RKey(0))
		require.Empty(t, s.AppendValid(nil, 1))
		require.ErrorIs(t, p.RemoveRegion(r), transport.ErrBusy)
		ext, err = s.Map(transport.Mapping{List: list, From: ext.Next})
		require.NoError(t, err, "mapping again replaces")
		require.EqualValues(t, 100, ext.Len)
		require.NoError(t, s.Unmap())
		require.NoError(t, s.Unmap())
		require.Zero(t, s.RKey(0))
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		_, err = s.Map(transport.Mapping{List: list})
		require.ErrorIs(t, err, transport.ErrClosed)

		_, err = p.NewRegistration(transport.FastMR, 16)
		require.ErrorIs(t, err, transport.ErrUnsupported)
		_, err = p.NewRegistration(99, 0)
		require.ErrorIs(t, err, transport.ErrInvalid)
		require.NoError(t, p.RemoveRegion(r))
		require.NoError(t, r.Close())
		require.NoError(t, p.Close())
		require.NoError(t, p.Close())
		require.ErrorIs(t, p.AddRegion(r), transport.ErrRegion)
	})
}

// A memfd as an example of memory from elsewhere.
// The guest is ours: there are as many huge pages as we say.
func TestHugePages(t *testing.T) {
	const file = "/proc/sys/vm/nr_hugepages"
	if os.Getenv("RDMARW_GUEST") == "" {
		t.Skip("changes " + file + ": in the guest only")
	}
	pages := func(n string) { require.NoError(t, os.WriteFile(file, []byte(n), 0o644)) }
	t.Cleanup(func() { pages("0") })
	onDevices(t, func(t *testing.T, d *device, host string) {
		pages("0")
		_, err := d.NewRegion(transport.RegionConfig{Size: 1, HugePages: true})
		require.ErrorIs(t, err, transport.ErrNoMemory)
		require.ErrorContains(t, err, file)
		pages("4")
		a, b := pair(t, d, host)
		const size = 3 << 20 // of two pages
		r, err := d.NewRegion(transport.RegionConfig{Size: size, Access: transport.LocalWrite, HugePages: true})
		require.NoError(t, err)
		require.Len(t, r.Bytes(), size)
		require.Zero(t, r.Addr()%hugePage)
		maps, err := os.ReadFile("/proc/self/smaps")
		require.NoError(t, err)
		_, after, found := strings.Cut(string(maps), fmt.Sprintf("%x-%x ", r.Addr(), r.Addr()+2*hugePage))
		require.True(t, found)
		require.Regexp(t, `^(?s:.{0,400})KernelPageSize: +2048 kB`, after)
		fill(r.Bytes(), 5)
		require.NoError(t, a.pd.AddRegion(r))
		reg, remote := b.expose(0, 100_000, transport.LocalWrite|transport.RemoteWrite|transport.RemoteRead)
		lkey := a.pd.Regions().View().Lookup(r.ID()).LKey
		a.sges = append(a.sges, transport.SGE{Addr: r.Addr() + hugePage - 50_000, Len: 100_000, LKey: lkey}) // over the border
		a.post(transport.WR{Op: transport.OpWrite, Flags: transport.Signaled, NumSGE: 1, RemoteAddr: remote.Addr, RKey: remote.Key})
		a.completeOK(0)
		a.sges = append(a.sges, transport.SGE{Addr: r.Addr(), Len: 100_000, LKey: lkey})
		a.post(transport.WR{Op: transport.OpRead, Flags: transport.Signaled, NumSGE: 1, RemoteAddr: remote.Addr, RKey: remote.Key})
		a.completeOK(0)
		require.Equal(t, b.mem.Bytes()[:100_000], r.Bytes()[:100_000])
		require.NoError(t, reg.Close())
		require.NoError(t, a.pd.RemoveRegion(r))
		require.NoError(t, r.Close())
	})
}

func TestOnDemandIsRefusedWhereItIsNotOffered(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, _ string) {
		o, err := Open(d.name, WithOnDemand())
		if d.odpOffered {
			require.NoError(t, err)
			require.NoError(t, o.Close())
			return
		}
		require.ErrorIs(t, err, transport.ErrUnsupported)
	})
}

// Every window that the device says it has can be allocated, and all are given back:
// none is left from whatever ran before.
func TestAllWindows(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, _ string) {
		if d.caps.Windows == transport.NoWindows {
			require.NotEqual(t, driverRXE, d.info.driver, "rxe has windows")
			t.Skip("no windows")
		}
		want := 1000
		if os.Getenv("RDMARW_ROUNDS_CYCLES") != "" { // scripts/test -long
			want = d.caps.MaxWindows
		}
		before := InUse().Windows
		var pds []transport.PD // of 2^18 windows each, at most
		var all []transport.Registration
		for len(all) < want {
			if len(all)%(1<<18) == 0 {
				p, err := d.NewPD()
				require.NoError(t, err)
				pds = append(pds, p)
			}
			w, err := pds[len(pds)-1].NewRegistration(transport.Window, 0)
			if err != nil {
				require.NoError(t, err, "window %d", len(all))
			}
			all = append(all, w)
		}
		require.Equal(t, before+want, InUse().Windows)
		if want == d.caps.MaxWindows {
			_, err := pds[len(pds)-1].NewRegistration(transport.Window, 0)
			require.Error(t, err, "rxe's word for it is EINVAL (__rxe_add_to_pool)")
		}
		for _, w := range all {
			if err := w.Close(); err != nil {
				require.NoError(t, err)
			}
		}
		require.Equal(t, before, InUse().Windows)
		for _, p := range pds {
			require.NoError(t, p.Close())
		}
	})
}

func TestWrapRegion(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		fd, err := unix.MemfdCreate("region", unix.MFD_CLOEXEC)
		require.NoError(t, err)
		defer unix.Close(fd)
		require.NoError(t, unix.Ftruncate(fd, 1<<16))
		mem, err := unix.Mmap(fd, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		require.NoError(t, err)
		defer func() { require.NoError(t, unix.Munmap(mem)) }()
		a, b := pair(t, d, host)
		r, err := d.WrapRegion(uintptr(unsafe.Pointer(&mem[0])), len(mem), transport.LocalWrite, mem)
		require.NoError(t, err)
		require.NoError(t, a.pd.AddRegion(r))
		fill(r.Bytes()[:100], 3)
		sges := []transport.SGE{{Addr: r.Addr(), Len: 100, LKey: a.pd.Regions().View().Lookup(r.ID()).LKey}}
		_, err = a.qp.PostSend([]transport.WR{{Cookie: 1, Op: transport.OpSend, Flags: transport.Signaled, NumSGE: 1}}, sges)
		require.NoError(t, err)
		a.completeOK(1)
		b.completeOK(recvCookie)
		require.Equal(t, mem[:100], b.mem.Bytes()[recvAt:][:100])
		require.NoError(t, a.pd.RemoveRegion(r))
		require.NoError(t, r.Close())
	})
}

// Everybody calls everything while the connection is closed under them: for the
// race detector, and for a crash.
func TestCloseUnderUse(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		for range 5 {
			a, b := newEnd(t, d), newEnd(t, d)
			connect(t, a, b, host)
			stop := make(chan struct{})
			var all sync.WaitGroup
			loop := func(f func()) {
				all.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							f()
							runtime.Gosched()
						}
					}
				})
			}
			sge := []transport.SGE{{Addr: a.mem.Addr(), Len: 16, LKey: a.lkey()}}
			loop(func() {
				a.qp.PostSend([]transport.WR{{Op: transport.OpSend, Flags: transport.Signaled, NumSGE: 1}}, sge)
			})
			loop(func() { a.qp.PostRecv([]transport.RecvWR{{}}, nil) })
			loop(func() { a.cq.Poll(make([]transport.Completion, 8)) })
			loop(func() { b.cq.Poll(make([]transport.Completion, 8)) })
			loop(func() { a.qp.State(); a.conn.QP(); a.conn.Err() })
			all.Go(func() { a.qp.Fail() })
			all.Go(func() { b.conn.Disconnect() })
			all.Go(func() { a.conn.Close() })
			all.Go(func() { a.conn.Close() })
			<-a.conn.Done()
			require.NoError(t, a.conn.Close())
			close(stop)
			all.Wait()
			a.close()
			b.close()
		}
	})
}
