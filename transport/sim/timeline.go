package sim

import (
	"encoding/json"
	"fmt"
	"io"

	"rdmarw/transport"
)

// timeline writes what happens as a trace for people to look at: the JSON array of
// the Trace Event Format, which chrome://tracing and https://ui.perfetto.dev open.
// A device is a process, a queue pair a thread of it. A work request is a span from
// its post to its completion, with a mark where it was started; calls that take
// time are spans of thread 0; arrivals and errors are marks. Times are virtual.
//
// In stepped mode it is the same for the same seed and calls, as the log is. A nil
// timeline writes nothing.
type timeline struct {
	w       io.Writer
	begun   bool
	threads map[[2]int]bool // that have a name
	line    []byte
}

func newTimeline(w io.Writer) *timeline {
	if w == nil {
		return nil
	}
	return &timeline{w: w, threads: make(map[[2]int]bool)}
}

// threadOfCalls is where calls are shown that are of no queue pair.
const threadOfCalls = 0

// event writes one event; the caller completes it.
func (t *timeline) event(phase string, d *Device, thread int, at int64, name string) {
	if !t.threads[[2]int{d.index, thread}] {
		t.threads[[2]int{d.index, thread}] = true
		who := "calls"
		if thread != threadOfCalls {
			who = fmt.Sprintf("qp %d", thread)
		}
		t.metadata("process_name", d, thread, d.name)
		t.metadata("thread_name", d, thread, who)
	}
	t.open(phase, d, thread, name)
	t.line = fmt.Appendf(t.line, `,"ts":%d.%03d`, at/1000, at%1000)
}

func (t *timeline) metadata(what string, d *Device, thread int, name string) {
	t.open("M", d, thread, what)
	t.line = fmt.Appendf(t.line, `,"args":{"name":%s}`, quoted(name))
	t.end()
}

func (t *timeline) open(phase string, d *Device, thread int, name string) {
	t.line = t.line[:0]
	if t.begun {
		t.line = append(t.line, ",\n"...)
	} else {
		t.line = append(t.line, "[\n"...)
		t.begun = true
	}
	t.line = fmt.Appendf(t.line, `{"ph":%q,"pid":%d,"tid":%d,"name":%q`, phase, d.index, thread, name)
}

func (t *timeline) end() {
	t.line = append(t.line, '}')
	_, _ = t.w.Write(t.line) // as the log: whoever gives a writer looks after it
}

// request writes a point in the life of a work request: "b" is its post, "n" its
// start, "e" its end.
func (t *timeline) request(phase string, q *QP, seq uint64, name, detail string) {
	if t == nil {
		return
	}
	t.event(phase, q.dev, int(q.num), q.dev.fabric.now, name)
	t.line = fmt.Appendf(t.line, `,"cat":"wr","id":"%d.%d.%d.%d","args":{"request":%d`, q.dev.index, q.num, q.gen, seq, seq)
	if detail != "" {
		t.line = fmt.Appendf(t.line, `,"status":%s`, quoted(detail))
	}
	t.line = append(t.line, '}')
	t.end()
}

// posted notes the requests of a post.
func (t *timeline) posted(q *QP, first uint64) {
	if t == nil {
		return
	}
	for seq := first; seq < q.sq.tail; seq++ {
		t.request("b", q, seq, q.sq.at(seq).wr.Op.String(), "")
	}
}

// ended notes the end of a request, signaled or not.
func (t *timeline) ended(q *QP, seq uint64, status transport.Status) {
	if t == nil {
		return
	}
	detail := "OK"
	if status != transport.StatusOK {
		detail = status.Error()
	}
	t.request("e", q, seq, q.sq.at(seq).wr.Op.String(), detail)
}

// call notes a call that ends now and took some time.
func (t *timeline) call(d *Device, name string, took int64) {
	if t == nil {
		return
	}
	t.event("X", d, threadOfCalls, d.fabric.now-took, name)
	t.line = fmt.Appendf(t.line, `,"dur":%d.%03d`, took/1000, took%1000)
	t.end()
}

// mark notes something of a queue pair that takes no time.
func (t *timeline) mark(q *QP, name string) {
	if t == nil {
		return
	}
	t.event("i", q.dev, int(q.num), q.dev.fabric.now, name)
	t.line = append(t.line, `,"s":"t"`...)
	t.end()
}

// quoted is a JSON string.
func quoted(s string) []byte {
	b, _ := json.Marshal(s) // strings never fail
	return b
}

// close ends the array.
func (t *timeline) close() {
	if t == nil {
		return
	}
	if !t.begun {
		_, _ = io.WriteString(t.w, "[")
	}
	_, _ = io.WriteString(t.w, "\n]\n")
}
