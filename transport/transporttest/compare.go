package transporttest

import (
	"fmt"
	"slices"
)

// Divergence is a row in which a device and its simulation are known to differ, and are
// meant to.
type Divergence struct {
	// Row is the Row.ID.
	Row string
	// Device and Simulated are what the cells say.
	Device, Simulated string
	// Cause is where in the source of the device the difference comes from: file, line
	// and function, and what is wrong there.
	Cause string
}

// Compare compares a device with its simulation, cell by cell, and returns what is wrong:
// differences that are not among the known ones, and known ones that are none any more or
// are of another kind now. A row that either column doesn't have, or that broke, is wrong as
// well.
func Compare(rows []Row, device, simulated Column, known []Divergence) []string {
	var wrong []string
	complain := func(id, format string, args ...any) {
		wrong = append(wrong, id+": "+fmt.Sprintf(format, args...))
	}
	left := slices.Clone(known)
	for i := range rows {
		id := rows[i].ID()
		d, ok1 := device.Cells[id]
		s, ok2 := simulated.Cells[id]
		if !ok1 || !ok2 {
			complain(id, "not run on both")
			continue
		}
		for _, c := range []struct {
			name string
			cell Cell
		}{{device.Name, d}, {simulated.Name, s}} {
			for _, what := range c.cell.Broken {
				complain(id, "%s: %s", c.name, what)
			}
		}
		at := slices.IndexFunc(left, func(k Divergence) bool { return k.Row == id })
		switch {
		case at < 0 && d.String() != s.String():
			complain(id, "%s: %v; %s: %v", device.Name, d, simulated.Name, s)
		case at < 0:
		case d.String() == s.String():
			complain(id, "no difference any more, take it off the list: %v", d)
		case left[at].Device != d.String() || left[at].Simulated != s.String():
			complain(id, "another difference than the list says: %s: %v (%s); %s: %v (%s)",
				device.Name, d, left[at].Device, simulated.Name, s, left[at].Simulated)
		}
		if at >= 0 {
			left = slices.Delete(left, at, at+1)
		}
	}
	for _, k := range left {
		complain(k.Row, "on the list of differences, and no row")
	}
	return wrong
}
