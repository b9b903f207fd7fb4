package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var updateGolden = flag.Bool("update", false, "write the golden files anew")

// The explanations are what the table of the design says of each kind of device;
// see the comment beside each.
func TestExplanationsReadAsBefore(t *testing.T) {
	type explained struct {
		device, op string
		pieces     int
		flags      []string
		status     int
		line       string // that must be in it
	}
	cases := []explained{
		// InfiniBand and RoCE: direct, in as many READs as it takes. User-space verbs
		// has no fast registration, so an empty pool changes nothing.
		{device: "mlx5", op: "read", pieces: 1, line: "post        READ0\n"},
		{device: "mlx5", op: "read", pieces: 3, line: "post        READ0(3 SGEs)\n"},
		{device: "mlx5", op: "read", pieces: 4, line: "post        READ0(4 SGEs)\n"},
		{device: "mlx5", op: "read", pieces: 256, line: "cost: 9 work requests (9 READs), 0 registrations"},
		{device: "mlx5", op: "read", pieces: 256, flags: []string{"-pool-empty"}, line: "cost: 9 work requests (9 READs), 0 registrations"},
		// ... but a registration where the list exceeds the device's hint, 3, and one is
		// free. What the last use left valid heads the chain as one INV more.
		{device: "mlx5-kernel", op: "read", pieces: 1, line: "post        READ0\n"},
		{device: "mlx5-kernel", op: "read", pieces: 3, line: "post        READ0(3 SGEs)\n"},
		{device: "mlx5-kernel", op: "read", pieces: 4, line: "post        REG0 READ0\n"},
		{device: "mlx5-kernel", op: "read", pieces: 4, flags: []string{"-pool-empty"}, line: "fallback: pool empty"},
		{device: "mlx5-kernel", op: "read", pieces: 256, line: "post        REG0 READ0\n"},
		{device: "mlx5-kernel", op: "read", pieces: 256, flags: []string{"-pool-empty"}, line: "fallback: pool empty"},
		// iWARP without fast registration: exactly the sink, by calls.
		{device: "siw", op: "read", pieces: 64, line: "register    64 MRs"},
		{device: "irdma-iwarp", op: "read", pieces: 64, line: "register    64 MRs"},
		{device: "i40iw", op: "write", pieces: 64, line: "cost: 22 work requests"},
		// iWARP with it: by work requests, READ_WITH_INV.
		{device: "siw-kernel", op: "read", pieces: 64, line: "post        REG0 READ+INV0\n"},
		{device: "siw-kernel", op: "read", pieces: 64, flags: []string{"-pool-empty"}, line: "it waits for them, and holds nothing"},
		{device: "siw-kernel", op: "read", pieces: 1024, line: "post        REG0 READ+INV0 REG1 READ+INV1 REG2 READ+INV2 REG3 READ+INV3\n"},
		{device: "cxgb4-kernel", op: "read", pieces: 1, flags: []string{"-bytes", "1048576"}, line: "post        REG0 READ+INV0 REG1 READ+INV1\n"},
		// An exposure: a fast registration, else windows, else synchronous MRs.
		{device: "siw-kernel", op: "expose", pieces: 3, flags: []string{"-pool-empty"}, line: "refused at once"},
		{device: "rxe", op: "expose", pieces: 3, line: "Grant       BIND0 BIND1 BIND2\n  Revoke      deallocate 3 MWs"},
		{device: "fmr", op: "expose", pieces: 3, line: "Revoke      deregister 3 MRs"},
		{device: "fmr", op: "read", pieces: 64, line: "post        READ0(30 SGEs) READ1(30 SGEs) READ2(4 SGEs)\n"},
		{device: "efa", op: "read", pieces: 64, status: exitFailed, line: "refused: no connection can be made"},
	}
	for _, c := range cases {
		name := fmt.Sprintf("%s-%s-%d%s", c.device, c.op, c.pieces, strings.Join(c.flags, ""))
		t.Run(name, func(t *testing.T) {
			args := append([]string{"explain", "-device", c.device, "-op", c.op, "-pieces", fmt.Sprint(c.pieces)}, c.flags...)
			status, out, errs := bench(args...)
			require.Empty(t, errs)
			require.Equal(t, c.status, status)
			require.Contains(t, out, c.line)
			path := filepath.Join("testdata", "explain", name+".golden")
			if *updateGolden {
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(out), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err, "run the test with -update to make it")
			require.Equal(t, string(want), out)
		})
	}
}
