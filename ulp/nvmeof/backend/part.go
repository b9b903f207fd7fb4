package backend

// part is an operation of the kernel's that is under way: a request, or a part of one. What
// is larger than the ring's limit goes in several parts, and is over when they all are.
type part struct {
	of   *Request
	size int32 // of its data, which is its result if it is done
}

// push has a request go with the next enter. It reports false if that is not for the ring
// to do, or there is no room. The caller holds mu, as for everything here.
func (q *ring) push(r *Request) bool {
	if q.stops || r.Op > Flush || r.Op == Flush && !durable || q.file.geometry.Check(r) != nil {
		return false
	}
	fd, data, at := q.file.fd, r.Data, int64(r.LBA<<q.file.geometry.BlockShift)
	if r.Op == Flush {
		data = nil
	}
	n := max(1, (len(data)+q.limit-1)/q.limit)
	if n > len(q.free) {
		return false
	}
	r.parts, r.done = n, true
	for range n {
		size := min(len(data), q.limit)
		tag := q.take(part{r, int32(size)})
		switch r.Op {
		case Read:
			q.ring.Read(fd, data[:size], at, tag)
		case Write:
			q.ring.Write(fd, data[:size], at, r.FUA && durable, tag)
		case Flush:
			q.ring.Sync(fd, tag)
		}
		data, at = data[size:], at+int64(size)
	}
	return true
}

// take gives a part a tag. There is one.
func (q *ring) take(p part) (tag uint64) {
	n := len(q.free) - 1
	i := q.free[n]
	q.free, q.parts[i] = q.free[:n], p
	return uint64(i)
}

// enter hands what was pushed to the kernel.
func (q *ring) enter(back *queue) {
	q.ring.Quiet(true) // what is over at once needs no event
	for range q.ring.Enter() {
		// Those that were not taken are the last that were pushed: their tags are still
		// there, behind the free ones.
		n := len(q.free)
		q.back(q.free[:n+1][n], false, back)
	}
}

// poll takes back what is over, and has events made for what is left.
func (q *ring) poll(back *queue) {
	for {
		tag, res, ok := q.ring.Poll()
		if !ok {
			if len(q.free) == len(q.parts) {
				return
			}
			q.ring.Quiet(false)
			if tag, res, ok = q.ring.Poll(); !ok { // one from just before makes no event
				return
			}
		}
		q.back(uint32(tag), res == q.parts[tag].size, back)
	}
}

// back takes a part back, and with the last one its request. What isn't done, or only in
// part, is done again by a worker, which says what is wrong.
func (q *ring) back(tag uint32, done bool, back *queue) {
	r := q.parts[tag].of
	q.parts[tag].of = nil
	q.free = append(q.free, tag)
	r.done = r.done && done
	if r.parts--; r.parts > 0 {
		return
	}
	// It is put here, under mu, where stop waits for it: Close lets the worker finish then.
	if r.done || !q.file.pool.put(r) {
		back.push(r)
	}
}
