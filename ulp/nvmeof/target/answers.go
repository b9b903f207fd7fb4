package target

import "sync"

// answers counts the responses that are under way, and keeps back those that would be too
// many. A slot can't receive before its response is over, and the host may send its next
// command before that is known here: acknowledgements may be late. Of n slots, and a host
// that may have e commands outstanding, n-e responses leave a receive for each command that
// may come. Without, such a command would find none (RNR): a retry takes 655 ms as the CM
// sets up queue pairs (a timer of 0), and on rxe 10 s have been seen.
type answers struct {
	limit int

	mu   sync.Mutex
	out  int
	owed list // prepared responses that wait
}

// enter reports whether the response of a slot may be posted now. If not, it is kept.
func (a *answers) enter(s *slot) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.out == a.limit {
		a.owed.push(s)
		return false
	}
	a.out++
	return true
}

// leave says that a response is over, and returns the one to be posted in its place, or nil.
func (a *answers) leave() *slot {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.owed.pop()
	if s == nil {
		a.out--
	}
	return s
}

// respond posts the prepared response of a slot, or has it posted when there is room.
func (s *slot) respond() {
	if q := s.q; q.answers.enter(s) && !s.submit(s.chain...) {
		q.answered()
	}
}

// answered is called when a response is over. It posts one that waited for that; one that
// can't be posted is over at once.
func (q *queue) answered() {
	for s := q.answers.leave(); s != nil && !s.submit(s.chain...); s = q.answers.leave() {
	}
}
