package target

import "sync"

// answers counts the responses that are under way, and keeps those that have to wait: until
// the others of a sweep are there, or because they would be too many. A slot can't receive
// before its response is over, and the host may send its next command before that is known
// here: acknowledgements may be late. Of n slots, and a host that may have e commands
// outstanding, n-e responses leave a receive for each command that may come. Without, such a
// command would find none: a retry after the RNR timer (ten seconds have been seen on rxe, with
// the timer of 655 ms that the CM leaves), and on iWARP the end of the connection.
type answers struct {
	limit int

	mu   sync.Mutex
	out  int
	held bool // all wait
	owed list // prepared responses that wait
}

// hold has all responses wait until next finds none.
func (a *answers) hold() {
	a.mu.Lock()
	a.held = true
	a.mu.Unlock()
}

// enter reports whether the response of a slot may be posted now. If not, it is kept.
func (a *answers) enter(s *slot) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held || a.out == a.limit {
		a.owed.push(s)
		return false
	}
	a.out++
	return true
}

// next appends the slots to a list whose responses are to be posted now. If there are none,
// the next that comes needn't wait.
func (a *answers) next(slots []*slot) []*slot {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.out < a.limit {
		s := a.owed.pop()
		if s == nil {
			break
		}
		a.out++
		slots = append(slots, s)
	}
	if len(slots) == 0 {
		a.held = false
	}
	return slots
}

// leave says that a response is over.
func (a *answers) leave() {
	a.mu.Lock()
	a.out--
	a.mu.Unlock()
}

// respond posts the prepared response of a slot, or has it posted when its time comes. It may
// be called from any goroutine.
func (s *slot) respond() {
	if q := s.q; q.answers.enter(s) && !s.submit(s.chain...) {
		q.answers.leave()
		q.poller.Call(q.flush) // those that have waited for this one end, too
	}
}
