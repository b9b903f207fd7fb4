package backend

// queue is a list of requests, first in, first out. The zero queue is empty. A request is
// in one queue at a time.
type queue struct{ head, tail *Request }

func (q *queue) push(r *Request) {
	r.next = nil
	if q.head == nil {
		q.head = r
	} else {
		q.tail.next = r
	}
	q.tail = r
}

// pop returns nil when there is none.
func (q *queue) pop() *Request {
	r := q.head
	if r != nil {
		q.head, r.next = r.next, nil
	}
	return r
}
