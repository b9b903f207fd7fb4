package transporttest

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"text/tabwriter"
)

// Column is what a list of rows recorded on one device.
type Column struct {
	// Name is the device's, such as "sim-rxe" or "rxe0".
	Name string
	// Cells are by Row.ID.
	Cells map[string]Cell
}

// Fill runs rows on one device.
func Fill(name string, rows []Row, f Factory) Column {
	c := Column{Name: name, Cells: make(map[string]Cell, len(rows))}
	for i := range rows {
		c.Cells[rows[i].ID()] = rows[i].Record(f)
	}
	return c
}

// Of is the column of some of its rows.
func (c Column) Of(rows []Row) Column {
	part := Column{Name: c.Name, Cells: make(map[string]Cell, len(rows))}
	for i := range rows {
		if cell, ok := c.Cells[rows[i].ID()]; ok {
			part.Cells[rows[i].ID()] = cell
		}
	}
	return part
}

// Exercised is how many rows were run: not those that are about something that the device
// doesn't have.
func (c Column) Exercised() int {
	n := 0
	for _, cell := range c.Cells {
		if !cell.Unsupported {
			n++
		}
	}
	return n
}

// same is how the table shows a cell that says what the one before it says.
const same = "="

// WriteTable writes columns beside each other, a line for each row. A cell that says what
// the one before it says is shown as "=", so give a device's column and its simulation's
// one after the other.
func WriteTable(w io.Writer, rows []Row, columns []Column) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "behaviour")
	for _, c := range columns {
		fmt.Fprintf(t, "\t%s", c.Name)
	}
	fmt.Fprintln(t)
	for i := range rows {
		id := rows[i].ID()
		fmt.Fprint(t, id)
		for k, c := range columns {
			cell := c.Cells[id].String()
			if k%2 == 1 && cell == columns[k-1].Cells[id].String() {
				cell = same
			}
			fmt.Fprintf(t, "\t%s", cell)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// gap is what is between two cells of a written table.
var gap = regexp.MustCompile(" {2,}")

// ReadTable reads what WriteTable wrote, up to an empty line.
func ReadTable(r io.Reader) ([]Column, error) {
	var columns []Column
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan() && lines.Text() != ""; n++ {
		cells := gap.Split(lines.Text(), -1)
		if n == 1 {
			for _, name := range cells[1:] {
				columns = append(columns, Column{Name: name, Cells: make(map[string]Cell)})
			}
			continue
		}
		if len(cells) != 1+len(columns) {
			return nil, fmt.Errorf("line %d: %d cells, the heading has %d", n, len(cells), 1+len(columns))
		}
		for k, c := range columns {
			switch text := cells[k+1]; {
			case text == same && k > 0:
				c.Cells[cells[0]] = columns[k-1].Cells[cells[0]]
			case text == unsupported:
				c.Cells[cells[0]] = Cell{Unsupported: true}
			default:
				c.Cells[cells[0]] = Cell{Value: text}
			}
		}
	}
	return columns, lines.Err()
}
