package transporttest

import (
	"fmt"
	"slices"
	"strings"

	"rdmarw/transport"
)

// Row is one behaviour: something that is done to a pair of devices, and what is
// recorded of it.
type Row struct {
	// Group and Name say what is done. Together they are the row's identity.
	Group, Name string
	// Crashes tells that there are devices whose machine does not survive the row
	// (Linux 6.12's rxe). It is left out unless asked for by its name.
	Crashes bool

	needs need
	run   func(*trial)
}

// ID is "group: name".
func (r *Row) ID() string { return r.Group + ": " + r.Name }

// need is what a device must have for a row to mean something.
type need func(*transport.Caps) bool

func needWindows(c *transport.Caps) bool { return c.Windows != transport.NoWindows }
func needFastReg(c *transport.Caps) bool { return c.FastReg.MaxPages > 0 }
func needAtomics(c *transport.Caps) bool { return c.Atomics }
func needImm(c *transport.Caps) bool     { return c.WriteWithImm }
func needInv(c *transport.Caps) bool     { return c.SendWithInv }
func needInline(c *transport.Caps) bool  { return c.MaxInline > 0 }
func needSRQ(c *transport.Caps) bool     { return c.MaxSRQWR > 0 }
func needNoIWARP(c *transport.Caps) bool { return c.Protocol != transport.IWARP }
func needWindowInv(c *transport.Caps) bool {
	return needWindows(c) && c.LocalInv[transport.Window] == transport.InvWorks
}

// Rows returns all rows, those that crash some machines included.
func Rows() []Row {
	return slices.Concat(
		accessRows(), atomicRows(), localRows(),
		sendRows(), receiveRows(), srqRows(),
		readRows(), orderRows(), fenceRows(),
		postRows(), limitRows(), flushRows(),
		windowRows(), fastRows(), invalidationRows(),
		registrationRows(), regionRows(), queueRows(),
		connectRows(), disconnectRows(), deviceRows(),
	)
}

// Find returns the rows of which the ID contains a text; those that crash some machines
// only if it is the whole of the ID.
func Find(text string) []Row {
	return slices.DeleteFunc(Rows(), func(r Row) bool {
		return !strings.Contains(r.ID(), text) || r.Crashes && r.ID() != text
	})
}

// Cell is what one row recorded on one device.
type Cell struct {
	// Value is what was recorded: words, separated by spaces.
	Value string
	// Unsupported: the device doesn't have what the row is about. Nothing was run.
	Unsupported bool
	// Broken tells what happened that must not happen on any device: memory that
	// changed outside of what was exposed, a completion that nobody asked for, an
	// object that can't be closed; or that the row could not be carried out.
	Broken []string
}

// unsupported is how the table shows a cell of a row that was not run.
const unsupported = "–"

// String is the cell as the table shows it.
func (c Cell) String() string {
	switch {
	case c.Unsupported:
		return unsupported
	case len(c.Broken) > 0:
		return strings.TrimSpace(c.Value + " BROKEN: " + strings.Join(c.Broken, "; "))
	}
	return c.Value
}

// Record runs the row on a bed of its own.
func (r *Row) Record(f Factory) (cell Cell) {
	bed, err := f()
	if err != nil {
		return Cell{Broken: []string{fmt.Sprintf("no bed: %v", err)}}
	}
	t := &trial{bed: bed}
	if r.needs != nil && (!r.needs(bed.A.Caps()) || !r.needs(bed.B.Caps())) {
		cell.Unsupported = true
	} else {
		t.carryOut(r.run)
	}
	t.finish()
	cell.Value, cell.Broken = strings.Join(t.notes, " "), t.broken
	return cell
}
