package conformance

import "rdmarw/transport/transporttest"

// Both devices have one number for the lkey and the rkey of a registration, so a program
// that takes one for the other works there, and fails on hardware that tells them apart. The
// simulator gives them different numbers on every profile, for that mistake to be found.
const (
	rxeOneKey = "drivers/infiniband/sw/rxe/rxe_mr.c:59 rxe_mr_init: the rkey is the number that the lkey has"
	siwOneKey = "drivers/infiniband/sw/siw/siw_mem.c:113 siw_mr_add_mem: lkey and rkey are both the STag"
)

// rxeDivergences are where rxe does what its simulation refuses to do.
var rxeDivergences = []transporttest.Divergence{
	{
		Row:    "range and key: READ lkey of the registration",
		Device: "A=ok B=0B sink=all", Simulated: "A=remote-access B=flushed sink=none", Cause: rxeOneKey,
	},
	{
		Row:    "range and key: WRITE lkey of the registration",
		Device: "A=ok B=0B bytes=all", Simulated: "A=remote-access B=flushed bytes=none", Cause: rxeOneKey,
	},
	{
		Row:    "own key: SEND with the rkey of a registration",
		Device: "A=ok B=32B", Simulated: "A=flushed B=none", Cause: rxeOneKey,
	},
}

// siwDivergences are where siw does what its simulation refuses to do.
var siwDivergences = []transporttest.Divergence{
	{
		Row:    "range and key: WRITE lkey of the registration",
		Device: "A=ok B=0B bytes=all", Simulated: "A=ok B=flushed bytes=none", Cause: siwOneKey,
	},
	{
		Row:    "own key: SEND with the rkey of a registration",
		Device: "A=ok B=32B", Simulated: "A=local-op B=flushed", Cause: siwOneKey,
	},
}
