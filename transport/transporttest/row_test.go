package transporttest

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// simulated makes beds of a profile.
func simulated(profile string) Factory {
	return func() (Bed, error) {
		f := sim.New(sim.Config{Seed: 1, Stepped: true})
		p, _ := sim.LookupProfile(profile)
		d, err := f.NewDevice(p, "d")
		return Bed{A: d, B: d, Listen: "d:0", Nobody: "d:1", Misuse: f.Err, Close: d.Close}, err
	}
}

// What must not happen on any device is noticed.
func TestBrokenDevicesAreNoticed(t *testing.T) {
	for what, run := range map[string]func(*trial){
		"1 bytes changed that nobody may change, from 7 to 7": func(t *trial) {
			_, b := t.pair()
			b.mem.Bytes()[7]++
		},
		"a completion of 77 that nobody expects: ok": func(t *trial) {
			a, b := t.pair()
			_, _ = a.qp.PostSend([]transport.WR{signaled(77, transport.OpSend)}, nil)
			b.received(0)
			a.until(func() bool { return len(a.got) > 0 })
		},
		"a completion of 1000 that nobody expects": func(t *trial) {
			a, b := t.pair()
			a.sync(1)
			b.received(0)
			b.got = append(b.got, transport.Completion{Cookie: firstReceive})
		},
		"still in use": func(t *trial) {
			_, err := t.end("A", t.bed.A).dev.NewCQ(1)
			t.must("new CQ", err)
		},
		"misuse: ": func(t *trial) {
			_, b := t.pair()
			b.bound(exposedAt, 64, readable)
			t.must("close", b.conn.Close())
		},
		"A: post receive: ": func(t *trial) {
			a, _ := t.pair()
			t.must("fail", a.qp.Fail())
			a.receive(1)
		},
	} {
		row := Row{Group: "test", Name: what, run: run}
		cell := row.Record(simulated("rxe"))
		require.Len(t, cell.Broken, 1, what)
		require.Contains(t, cell.Broken[0], what)
		require.Contains(t, cell.String(), "BROKEN")
	}
	row := Row{Group: "test", Name: "nothing", run: func(t *trial) { t.noteError("error", errors.New("odd")) }}
	cell := row.Record(simulated("rxe"))
	require.Contains(t, cell.Value, "not-in-the-contract(odd)")
	require.Len(t, cell.Broken, 1)
	cell = row.Record(func() (Bed, error) { return Bed{}, errors.New("none") })
	require.Equal(t, []string{"no bed: none"}, cell.Broken)
}

func TestCompare(t *testing.T) {
	rows := []Row{{Group: "g", Name: "a"}, {Group: "g", Name: "b"}}
	column := func(name, a, b string) Column {
		return Column{Name: name, Cells: map[string]Cell{"g: a": {Value: a}, "g: b": {Value: b}}}
	}
	known := []Divergence{{Row: "g: a", Device: "x", Simulated: "y"}}
	for _, tt := range []struct {
		device, simulated Column
		known             []Divergence
		want              string
	}{
		{column("d", "x", "z"), column("s", "x", "z"), nil, ""},
		{column("d", "x", "z"), column("s", "y", "z"), known, ""},
		{column("d", "x", "z"), column("s", "y", "z"), nil, "g: a: d: x; s: y"},
		{column("d", "x", "z"), column("s", "x", "z"), known, "g: a: no difference any more, take it off the list: x"},
		{column("d", "w", "z"), column("s", "y", "z"), known, "g: a: another difference than the list says: d: w (x); s: y (y)"},
		{column("d", "x", "z"), column("s", "x", "z"), []Divergence{{Row: "g: c"}}, "g: c: on the list of differences, and no row"},
		{column("d", "x", "z"), Column{Name: "s", Cells: map[string]Cell{"g: a": {Value: "x"}}}, nil, "g: b: not run on both"},
		{column("d", "x", "z"), Column{Name: "s", Cells: map[string]Cell{"g: a": {Value: "x"}, "g: b": {Unsupported: true}}}, nil, "g: b: d: z; s: –"},
	} {
		require.Equal(t, tt.want, strings.Join(Compare(rows, tt.device, tt.simulated, tt.known), "\n"))
	}
	broken := column("d", "x", "z")
	broken.Cells["g: a"] = Cell{Value: "x", Broken: []string{"it"}}
	require.Contains(t, Compare(rows, broken, broken, nil), "g: a: d: it")
}

func TestTableIsReadAsItIsWritten(t *testing.T) {
	rows := []Row{{Group: "g", Name: "a"}, {Group: "g", Name: "long, b"}}
	columns := []Column{
		{Name: "d", Cells: map[string]Cell{"g: a": {Value: "A=ok B=2"}, "g: long, b": {Unsupported: true}}},
		{Name: "s", Cells: map[string]Cell{"g: a": {Value: "A=ok B=2"}, "g: long, b": {Value: "C=3"}}},
	}
	var b strings.Builder
	require.NoError(t, WriteTable(&b, rows, columns))
	require.Contains(t, b.String(), "A=ok B=2  =\n")
	got, err := ReadTable(strings.NewReader(b.String() + "\nmore  to  say\n"))
	require.NoError(t, err)
	require.Equal(t, columns, got)
	require.Equal(t, 1, got[0].Exercised())
	_, err = ReadTable(strings.NewReader("behaviour  d\nrow\n"))
	require.ErrorContains(t, err, "line 2")
}
