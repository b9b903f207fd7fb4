package main

import (
	"errors"
	"fmt"

	"rdmarw/mrpool"
	"rdmarw/rw"
)

// readOrWrite has side a move the data between its pieces and one range of side
// b's, which b exposes for just this transfer.
func (t *trial) readOrWrite(m *meter) (s sample, err error) {
	source, sink := &t.b.contiguous, &t.a.scattered
	op, ops := rw.Read, mrpool.ReadSource
	if t.op == "write" {
		source, sink = sink, source
		op, ops = rw.Write, mrpool.WriteSink
	}
	source.fill(t.data)
	sink.poison(t.data)
	if err := t.b.ep.Expose(&t.exposure, t.b.contiguous.pieces, ops); err != nil {
		return s, fmt.Errorf("the peer's expose: %w", err)
	}
	if err := t.do(&t.b, &t.exposure.Grant, nil); err != nil {
		return s, fmt.Errorf("the peer's grant: %w", err)
	}
	remotes := t.exposure.Remotes()
	if n := remoteBytes(remotes); n != uint64(t.bytes) {
		return s, fmt.Errorf("the peer exposed %d bytes, not %d", n, t.bytes)
	}

	end := t.observe()
	m.resume()
	err = t.a.ep.Prepare(&t.transfer, rw.Transfer{Op: op, Local: t.a.scattered.pieces, Remote: remotes})
	if err == nil {
		t.plan = t.transfer.Plan()
		err = t.do(&t.a, &t.transfer, m)
	}
	m.pause()
	s = end()

	if err == nil && op == rw.Write {
		err = t.landed(&t.a, &t.b)
	}
	if revoked := t.do(&t.b, &t.exposure.Revoke, nil); revoked != nil {
		err = errors.Join(err, fmt.Errorf("the peer's revoke: %w", revoked))
	}
	if err != nil {
		return s, err
	}
	return s, t.settle(sink)
}

// expose has side a expose its pieces, and side b write the data to them.
func (t *trial) expose(m *meter) (s sample, err error) {
	source, sink := &t.b.contiguous, &t.a.scattered
	source.fill(t.data)
	sink.poison(t.data)

	end := t.observe()
	m.resume()
	if err := t.a.ep.Expose(&t.exposure, sink.pieces, mrpool.WriteSink); err != nil {
		return s, err
	}
	err = t.do(&t.a, &t.exposure.Grant, m)
	m.pause()
	if err != nil {
		return s, fmt.Errorf("grant: %w", err)
	}
	t.plan = t.exposure.Plan()
	revocation := t.exposure.Revoke.Plan().Cost
	t.plan.Cost.WRs += revocation.WRs
	t.plan.Cost.Invalidations += revocation.Invalidations

	err = t.b.ep.Prepare(&t.transfer, rw.Transfer{Op: rw.Write, Local: source.pieces, Remote: t.exposure.Remotes()})
	if err == nil {
		err = t.do(&t.b, &t.transfer, nil)
	}
	if err == nil {
		err = t.landed(&t.b, &t.a)
	}
	if err != nil {
		err = fmt.Errorf("the peer's WRITE: %w", err)
	}

	m.resume()
	revoked := t.do(&t.a, &t.exposure.Revoke, m)
	m.pause()
	s = end()
	if err = errors.Join(err, revoked); err != nil {
		return s, err
	}
	return s, t.settle(sink)
}

// landed returns when all WRITEs of one side are in the memory of the other: when
// a message that was sent after them has arrived. Their own completions don't say
// so on iWARP, where a WRITE has no answer. (The message isn't empty: siw refuses
// receives without memory.)
func (t *trial) landed(from, to *side) error {
	if err := to.ep.PrepareRecv(&t.signal.received, to.message.pieces); err != nil {
		return err
	}
	if err := to.ep.PostRecv(&t.signal.received); err != nil {
		return err
	}
	if err := from.ep.PrepareSend(&t.signal.sent, rw.Message{Local: from.message.pieces}); err != nil {
		return err
	}
	if err := t.do(from, &t.signal.sent, nil); err != nil {
		return err
	}
	return t.finish(to, &t.signal.received, nil)
}
