package ibverbs

import (
	"reflect"
	"testing"
	"unsafe"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

func rxeReport() reported {
	return reported{
		maxSGE: 32, maxSGERead: 32, maxQPWR: 1 << 20, maxCQE: 1 << 15, maxSRQWR: 1 << 20, maxMR: 1 << 19, maxWindows: 1 << 19,
		respRes: 128, initDepth: 128, windows: transport.Windows2B, atomics: true, protocol: transport.RoCE,
		maxMsg: 1 << 31, maxMRSize: 1 << 40, inline: 96,
	}
}

func TestQuirksOfRXE(t *testing.T) {
	q := quirkOf(driverRXE, transport.RoCE)
	c := q.caps("rxe0", rxeReport())
	require.Equal(t, transport.Windows2B, c.Windows)
	require.Equal(t, transport.InvHarmful, c.LocalInv[transport.Window])
	require.Equal(t, transport.InvWorks, c.RemoteInv[transport.Window])
	require.Equal(t, transport.InvNone, c.RemoteInv[transport.SyncMR])
	require.Zero(t, c.FastReg)
	require.False(t, c.ReadSinkNeedsRemoteWrite)
	set := sendOps(&c)
	require.NotZero(t, set&ops(transport.OpBindWindow))
	require.Zero(t, set&ops(transport.OpLocalInv), "it may crash the kernel")
	require.Zero(t, set&ops(transport.OpReadWithInv, transport.OpFastReg))
}

func TestQuirksOfSIW(t *testing.T) {
	q := quirkOf(driverSIW, transport.IWARP)
	c := q.caps("siw0", reported{maxSGE: 6, maxSGERead: 1, protocol: transport.IWARP, atomics: true, respRes: 128, initDepth: 1000})
	require.Equal(t, 1, c.MaxSGERead)
	require.Equal(t, 80, c.MaxInline)
	require.Equal(t, 254, c.InitiatorDepth)
	require.Equal(t, transport.InvHarmful, c.RemoteInv[transport.SyncMR])
	require.False(t, c.CompletionReportsInv)
	require.False(t, c.ReadSinkNeedsRemoteWrite)
	require.Equal(t, ops(transport.OpSend, transport.OpSendWithInv, transport.OpWrite, transport.OpRead), sendOps(&c))
}

// A driver nobody looked at gets nothing that verbs doesn't guarantee.
func TestQuirksOfTheUnknown(t *testing.T) {
	q := quirkOf(driverUnknown, transport.RoCE)
	c := q.caps("new0", rxeReport())
	require.Equal(t, transport.NoWindows, c.Windows)
	require.Zero(t, c.LocalInv)
	require.Zero(t, c.RemoteInv)
	require.False(t, c.SendWithInv)
	require.Zero(t, sendOps(&c)&ops(transport.OpSendWithInv, transport.OpBindWindow, transport.OpLocalInv))

	q = quirkOf(9999, transport.IWARP)
	c = q.caps("new1", rxeReport())
	require.True(t, c.ReadSinkNeedsRemoteWrite)
	require.Equal(t, transport.InvHarmful, c.RemoteInv[transport.SyncMR])
	require.False(t, c.WriteWithImm)
}

func TestQuirksOfTwoProtocols(t *testing.T) {
	roce, iwarp := quirkOf(driverIRDMA, transport.RoCE), quirkOf(driverIRDMA, transport.IWARP)
	require.False(t, roce.sinkRemoteWrite)
	require.True(t, iwarp.sinkRemoteWrite)
}

// Windows count only if the device has them, whatever the provider can do.
func TestNoWindowsNoInvalidation(t *testing.T) {
	r := rxeReport()
	r.maxWindows = 0
	q := quirkOf(driverMLX5, transport.RoCE)
	c := q.caps("mlx5_0", r)
	require.Equal(t, transport.NoWindows, c.Windows)
	require.Zero(t, c.LocalInv)
	require.Zero(t, c.RemoteInv)
}

// Each property of a driver that isn't a capability has a note. What a number says is in the
// capabilities too.
func TestEveryQuirkHasANote(t *testing.T) {
	capabilities := []string{"windows", "sendWithInv", "reportsInv"}
	set := reflect.TypeFor[quirk]()
	var without []string
	for i := range set.NumField() {
		if set.Field(i).Type.Kind() != reflect.Bool {
			continue
		}
		var q quirk
		*(*bool)(unsafe.Add(unsafe.Pointer(&q), set.Field(i).Offset)) = true
		if len(q.notes()) != 1 {
			without = append(without, set.Field(i).Name)
		}
	}
	require.Equal(t, capabilities, without)
}

func TestDriverNames(t *testing.T) {
	require.Equal(t, "siw", driverSIW.String())
	require.Equal(t, "unknown", driverUnknown.String())
	for d := range quirks {
		require.NotEqual(t, "unknown", d.String())
	}
}
