package host_test

import (
	"bytes"
	"testing"

	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/nvme"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNothingOfWhatIsRefused: a call that takes several commands, and one of which can't be
// carried out, sends none.
func TestNothingOfWhatIsRefused(t *testing.T) {
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			r := newRig(t, simulated(t, profile), target.Config{})
			c := r.connect(host.Config{MaxTransfer: 64 << 10})
			ctx := timeout(t)
			ns, err := c.Namespace(ctx, 1)
			require.NoError(t, err)
			size := int(ns.Size())
			want := bytes.Repeat([]byte("what is there"), size/13+1)[:size]
			_, err = ns.WriteAt(want, 0)
			require.NoError(t, err)
			m := region(t, c, 1<<20)
			end := uint64(size) / 512

			before := c.Stats().Commands
			assert.ErrorIs(t, ns.Write(ctx, end-128, m.Piece(0, 128<<10)), nvme.LBAOutOfRange)
			assert.ErrorIs(t, ns.Read(ctx, end-128, m.Piece(0, 128<<10)), nvme.LBAOutOfRange)
			assert.ErrorIs(t, ns.Write(ctx, ^uint64(127), m.Piece(0, 128<<10)), nvme.LBAOutOfRange)
			assert.ErrorIs(t, ns.WriteZeroes(ctx, 0, end+1), nvme.LBAOutOfRange)
			assert.ErrorIs(t, ns.WriteZeroes(ctx, 1, ^uint64(0)), nvme.LBAOutOfRange)
			if r.dev.Caps().FastReg.MaxPages == 0 { // one run of memory for each command
				list := []transport.Piece{m.Piece(0, 64<<10), m.Piece(128<<10, 256), m.Piece(256<<10, 256)}
				assert.ErrorIs(t, ns.Write(ctx, 0, list...), host.ErrUnaligned)
			}
			assert.Equal(t, before, c.Stats().Commands)
			got := make([]byte, size)
			_, err = ns.ReadAt(got, 0)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(want, got))
		})
	}
}
