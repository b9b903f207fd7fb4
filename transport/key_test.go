package transport

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestSizesOfHotRecords(t *testing.T) {
	require.Equal(t, uintptr(16), unsafe.Sizeof(Piece{}))
	require.Equal(t, uintptr(16), unsafe.Sizeof(Remote{}))
	require.Equal(t, uintptr(16), unsafe.Sizeof(SGE{}))
	require.Equal(t, uintptr(56), unsafe.Sizeof(WR{}), "a WR fits a cache line")
}

func TestKeyFormat(t *testing.T) {
	require.Equal(t, "lkey:00012a.07", LKey(0x12a07).String())
	require.Equal(t, "rkey:00012a.07", RKey(0x12a07).String())
	require.Equal(t, uint8(7), RKey(0x12a07).KeyByte())
}

func TestAccess(t *testing.T) {
	require.Equal(t, "local-read", Access(0).String())
	require.Equal(t, "local-write+remote-write", (LocalWrite | RemoteWrite).String())
	require.False(t, RemoteWrite.Valid(), "a peer's right to write needs the local one")
	require.True(t, RemoteRead.Valid())
}
