package backend

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDiskLimit looks into a sysfs with a disk and a partition of it, both found by links.
func TestDiskLimit(t *testing.T) {
	page := os.Getpagesize()
	for _, c := range []struct {
		kb, segments string // of the files; empty: there is none
		want         int
	}{
		{"127\n", "", 124 << 10},
		{"127\n", "128\n", 124 << 10},
		{"128\n", "65535\n", 128 << 10},
		{"1280\n", "127\n", 126 * page},
		{"1280\n", "", 255 * page},
		{"2147483647\n", "", 255 * page},
		{"4\n", "1\n", 4096},
		{"1\n", "", 4096},
		{"0\n", "128\n", 0},
		{"", "128\n", 0},
		{"-5\n", "", 0},
		{"lots\n", "", 0},
		{"64\n", "few\n", 64 << 10},
	} {
		sys := t.TempDir()
		disk, numbers := filepath.Join(sys, "devices", "pci", "sda"), filepath.Join(sys, "dev", "block")
		require.NoError(t, os.MkdirAll(filepath.Join(disk, "sda1"), 0o700))
		require.NoError(t, os.MkdirAll(filepath.Join(disk, "queue"), 0o700))
		require.NoError(t, os.MkdirAll(numbers, 0o700))
		require.NoError(t, os.Symlink("../../devices/pci/sda", filepath.Join(numbers, "8:0")))
		require.NoError(t, os.Symlink("../../devices/pci/sda/sda1", filepath.Join(numbers, "8:1")))
		for name, text := range map[string]string{"max_sectors_kb": c.kb, "max_segments": c.segments} {
			if text != "" {
				require.NoError(t, os.WriteFile(filepath.Join(disk, "queue", name), []byte(text), 0o600))
			}
		}
		assert.Equal(t, c.want, diskLimit(numbers+"/8:0"), "%q", c)
		assert.Equal(t, c.want, diskLimit(numbers+"/8:1"), "%q, a partition", c)
		assert.Zero(t, diskLimit(numbers+"/8:2"), "no disk")
	}
}

// TestTransferLimit: it is that of the disk that a file is on, if on one.
func TestTransferLimit(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	defer f.Close()
	limit := transferLimit(int(f.Fd()))
	t.Logf("%d bytes", limit)
	assert.GreaterOrEqual(t, limit, 0)
	assert.Zero(t, limit%4096)
	assert.Zero(t, transferLimit(-1))
}
