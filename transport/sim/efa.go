package sim

// efa is Amazon's. It is here to be refused, with the reason: its queue pairs are
// unreliable datagrams and SRD, which delivers reliably but in any order, to any
// peer. There is neither READ_WITH_INV nor an order between a WRITE and the SEND
// behind it, on which all of this library's users rely, nor a connection manager
// (rdma-core, providers/efa/verbs.c: create_qp takes IBV_QPT_UD and the driver's
// own type, and answers EOPNOTSUPP to the rest).
func efa() Profile {
	return Profile{
		Name: "efa",
		Refusal: "EFA has no reliable connections (RC): its SRD queue pairs deliver in any order, so that a SEND may overtake " +
			"the WRITE before it, and there is no connection manager for them; use libfabric's efa provider there",
	}
}
