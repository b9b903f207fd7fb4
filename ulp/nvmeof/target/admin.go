package target

import (
	"slices"

	"rdmarw/ulp/nvmeof/nvme"
	"rdmarw/ulp/nvmeof/target/internal/core"
)

// decideAdmin plans a fabrics command, or one of the admin queue.
func (s *slot) decideAdmin(a *association) core.Plan {
	t := s.q.target
	now := t.cfg.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	a.ctrl.Alive(now)
	if s.cmd.Opcode != nvme.Fabrics {
		return a.ctrl.PlanAdmin(&s.cmd, now)
	}
	a.ctrl.Executing(slices.ContainsFunc(t.queues, func(q *queue) bool {
		return q.id != 0 && q.association.Load() == a && q.undecided.Load() > 0
	}))
	p := a.ctrl.PlanFabrics(&s.cmd, s.q.id)
	a.ready.Store(a.ctrl.Ready())
	return p
}

// connect carries out a Connect whose data is there.
func (s *slot) connect() {
	q, t := s.q, s.q.target
	t.mu.Lock()
	var joined *core.Joined
	// A host can send another Connect before the first is answered.
	p := core.Plan{Status: nvme.CommandSequence | nvme.DNR}
	if q.association.Load() == nil {
		joined, p = t.directory.Connect(&s.cmd, s.data, q.id, q.entries, t.cfg.Now())
	}
	var a *association
	if joined != nil {
		a = t.associationOf(joined.Controller)
		a.ctrl.Narrow(q.port.depth)
		if q.failed.Load() {
			// It has failed meanwhile, and nobody will come to take it out again.
			t.directory.Leave(joined)
			joined, a, p = nil, nil, core.Plan{Status: nvme.InternalError}
		}
	}
	if a != nil {
		a.heard.Store(true)
		q.joined = joined
		q.association.Store(a)
	}
	t.mu.Unlock()
	s.plan.Result = p.Result
	if a == nil {
		var asked nvme.ConnectData
		_ = asked.Decode(s.data) // else it is empty
		log := q.logger().With("subsystem", asked.Subsystem, "hostnqn", asked.Host)
		if code := p.Status.Code(); code == nvme.ConnectInvalidParam || code == nvme.ConnectInvalidHost {
			log = log.With("parameter", nvme.ParamName(p.Result))
		}
		log.Info("connect refused", "status", p.Status)
	} else {
		q.note("connected", "controller", a.ctrl.ID(), "hostnqn", a.ctrl.Host(), "subsystem", a.ctrl.Subsystem().NQN, "entries", joined.Entries)
	}
	s.answer(p.Status)
}

func (t *Target) find(nqn string) *subsystem {
	for _, s := range t.subsystems {
		if s.NQN == nqn {
			return s
		}
	}
	return nil
}

// associationOf returns the association of a controller: a new one for a controller whose
// admin queue has just connected. The caller holds the lock.
func (t *Target) associationOf(ctrl *core.Controller) *association {
	for _, q := range t.queues {
		if a := q.association.Load(); a != nil && a.ctrl == ctrl {
			return a
		}
	}
	return &association{ctrl: ctrl, sub: t.find(ctrl.Subsystem().NQN)}
}

// fill makes the data of an admin command.
func (s *slot) fill() {
	t := s.q.target
	a := s.q.association.Load()
	env := core.Environment{Entry: s.q.port.discoveryEntry(s.q.ep.Conn().LocalAddr())}
	if a.sub != nil {
		env.Usage = a.sub.usage()
		env.Usage.Hours = uint64(t.cfg.Now().Sub(t.started).Hours())
	}
	t.mu.Lock()
	a.ctrl.Fill(&s.cmd, s.data, &env)
	t.mu.Unlock()
	s.answer(nvme.Success)
}

// hold keeps an asynchronous event request, or aborts one that is kept.
func (s *slot) hold() {
	q := s.q
	if s.plan.Action == core.AbortHeld {
		held := q.held.take(uint16(s.plan.Result))
		s.plan.Result = 1 // not aborted
		if held != nil {
			s.plan.Result = 0
			q.target.mu.Lock()
			q.association.Load().ctrl.Released()
			q.target.mu.Unlock()
			q.executing.Add(1)
			held.answer(nvme.AbortRequested)
		}
		s.answer(nvme.Success)
		return
	}
	s.executed() // it may stay for ever
	if q.shut {
		s.goHome()
		return
	}
	q.held.push(s)
}
