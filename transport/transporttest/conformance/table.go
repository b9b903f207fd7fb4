package conformance

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"rdmarw/transport/transporttest"
)

//go:embed recorded.txt
var recorded string

// Recorded is what the devices did when the table was recorded.
func Recorded() ([]transporttest.Column, error) {
	return transporttest.ReadTable(strings.NewReader(recorded))
}

// Table is the whole comparison.
type Table struct {
	Rows []transporttest.Row
	// Columns are in pairs: a device, its simulation.
	Columns []transporttest.Column
	// Wrong is what Compare found: nothing, if the simulator is right.
	Wrong []string
}

// Fill fills the table for the given rows. If live, the devices are run, all at the same
// time, otherwise what was recorded of them is taken.
func Fill(rows []transporttest.Row, live bool) (*Table, error) {
	pairs := Pairs()
	t := &Table{Rows: rows, Columns: make([]transporttest.Column, 2*len(pairs))}
	if !live {
		old, err := Recorded()
		if err != nil {
			return nil, fmt.Errorf("recorded.txt: %w", err)
		}
		for i, p := range pairs {
			for _, c := range old {
				if c.Name == p.Device {
					t.Columns[2*i] = c.Of(rows)
				}
			}
		}
	}
	var running sync.WaitGroup
	failed := make([]error, len(pairs))
	for i, p := range pairs {
		running.Go(func() {
			if live {
				t.Columns[2*i], failed[i] = run(p.Device, rows)
			}
			t.Columns[2*i+1] = transporttest.Fill("sim-"+p.Profile, rows, Simulated(p.Profile, 1))
		})
	}
	running.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	for i, p := range pairs {
		for _, what := range transporttest.Compare(rows, t.Columns[2*i], t.Columns[2*i+1], p.among(rows)) {
			t.Wrong = append(t.Wrong, p.Device+": "+what)
		}
	}
	return t, nil
}

// run runs rows on a real device.
func run(device string, rows []transporttest.Row) (transporttest.Column, error) {
	factory, done, err := Real(device)
	if err != nil {
		return transporttest.Column{}, err
	}
	c := transporttest.Fill(device, rows, factory)
	return c, done()
}

// among are the known differences of the rows that are looked at.
func (p Pair) among(rows []transporttest.Row) []transporttest.Divergence {
	if len(rows) == len(transporttest.Find("")) {
		return p.Known // so that those of rows that don't exist are found
	}
	var known []transporttest.Divergence
	for _, k := range p.Known {
		for i := range rows {
			if rows[i].ID() == k.Row {
				known = append(known, k)
			}
		}
	}
	return known
}

// Devices are the columns of the devices alone, as they are recorded.
func (t *Table) Devices() []transporttest.Column {
	var devices []transporttest.Column
	for i := 0; i < len(t.Columns); i += 2 {
		devices = append(devices, t.Columns[i])
	}
	return devices
}

// Write writes the table, how many rows were exercised in each column, the differences
// that are meant, each with its cause, and those that aren't.
func (t *Table) Write(w io.Writer) error {
	if err := transporttest.WriteTable(w, t.Rows, t.Columns); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d rows", len(t.Rows))
	for _, c := range t.Columns {
		fmt.Fprintf(w, "; %d exercised on %s", c.Exercised(), c.Name)
	}
	fmt.Fprintln(w)
	n := 0
	for _, p := range Pairs() {
		for _, k := range p.among(t.Rows) {
			n++
			fmt.Fprintf(w, "\nmeant to differ %d: %s\n  %s: %s\n  sim-%s: %s\n  %s\n", n, k.Row, p.Device, k.Device, p.Profile, k.Simulated, k.Cause)
		}
	}
	for _, what := range t.Wrong {
		fmt.Fprintf(w, "\nWRONG: %s\n", what)
	}
	return nil
}
