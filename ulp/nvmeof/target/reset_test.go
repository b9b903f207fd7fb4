package target

import (
	"bytes"
	"testing"
	"time"

	"rdmarw/mrpool"
	"rdmarw/ulp/nvmeof/backend"
	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/require"
)

// A host resets its controller, or shuts it down. When CSTS says that this is over, no command
// of before changes anything any more, or it would undo what is written next. What has not
// begun by a reset never does.
func TestCSTSIsOverWhenCommandsAre(t *testing.T) {
	t.Run("reset", func(t *testing.T) {
		third := endCommands(t, nvme.CCEntrySizes, func(s nvme.ControllerStatus) bool { return !s.Ready() })
		require.Equal(t, nvme.AbortRequested, third.Status.Code())
	})
	t.Run("shutdown", func(t *testing.T) {
		third := endCommands(t, nvme.CCEntrySizes|nvme.CCEnable|nvme.CCShutdownNormal, nvme.ControllerStatus.ShutdownComplete)
		require.Equal(t, nvme.Success, third.Status)
	})
}

// endCommands sets CC while there are three writes: two are with the backend, one waits for
// the queue's memory. It returns how that ended.
func endCommands(t *testing.T, cc nvme.Configuration, over func(nvme.ControllerStatus) bool) nvme.Completion {
	slow := newSlowBackend(t)
	r := newRig(t, "rxe", Config{MaxTransfer: 64 << 10, QueueMemory: 128 << 10,
		Subsystems: []Subsystem{{NQN: testNQN, Namespaces: []Namespace{{ID: 1, Backend: slow}}}}})
	s := r.host().session(1, dialConfig{room: 64 << 10})
	l := s.io[0]
	var calls [3]*call
	for i := range calls {
		c := <-l.free
		calls[i] = c
		for j := range c.data {
			c.data[j] = 0xAA
		}
		cmd := blocks(nvme.Write, uint64(i)*128, 128)
		cmd.Flags = nvme.FlagSGL
		var err error
		cmd.SGL, err = c.expose(64<<10, mrpool.ReadSource)
		require.NoError(t, err)
		cmd.SGL.Type = nvme.SGLKeyed
		require.NoError(t, c.start(&cmd, 0))
	}
	<-slow.arrived
	<-slow.arrived
	require.Eventually(t, func() bool { return r.Stats().Waits == 1 }, 10*time.Second, time.Millisecond)
	status := func() nvme.ControllerStatus { return nvme.ControllerStatus(s.get(nvme.PropCSTS, false)) }
	s.set(cc)
	require.False(t, over(status()), "two writes are with the backend")
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case slow.release <- struct{}{}:
			case <-slow.arrived:
			case <-stop:
				return
			}
		}
	}()
	require.Eventually(t, func() bool { return over(status()) }, 10*time.Second, time.Millisecond)
	written := func() int {
		got := make([]byte, 3*64<<10)
		slow.Backend.Submit(&backend.Request{Op: backend.Read, Blocks: 384, Data: got, Done: func(*backend.Request, error) {}})
		return bytes.Count(got, []byte{0xAA})
	}
	then := written()
	time.Sleep(50 * time.Millisecond)
	require.Equal(t, then, written(), "bytes changed afterwards")
	var last nvme.Completion
	for _, c := range calls {
		var err error
		last, err = c.wait()
		require.NoError(t, err)
		l.free <- c
	}
	return last
}
