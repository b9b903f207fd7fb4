package rw_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// What is explained is what the endpoint decides.
func TestExplanationsAreTheEndpointsDecisions(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		limits := p.a.ep.Limits()
		var c rw.Context
		for _, op := range []rw.Op{rw.Read, rw.Write} {
			for _, n := range []int{1, 33, 100} {
				tr := rw.Transfer{Op: op, Local: apart(p.a.region, n), Remote: []transport.Remote{{Addr: 0x1000, Len: uint32(n) * 4096, Key: 0x100}}}
				x, err := rw.Explain(tr, limits, p.a.pd.Regions().View())
				require.NoError(t, err)
				require.NoError(t, p.a.ep.Prepare(&c, tr))
				require.Equal(t, c.Plan(), x.Plan)
			}
		}
		var e rw.Exposure
		for _, n := range []int{1, 3, 8} {
			list := apart(p.a.region, n)
			x, err := rw.ExplainExposure(list, mrpool.ReadSource, limits, p.a.pd.Regions().View())
			require.NoError(t, err)
			require.NoError(t, p.a.ep.Expose(&e, list, mrpool.ReadSource))
			grant, revoke := e.Grant.Plan(), e.Revoke.Plan()
			require.Equal(t, grant.Strategy, x.Plan.Strategy)
			require.Equal(t, grant.Bytes, x.Plan.Bytes)
			require.Equal(t, rw.Cost{
				WRs:           grant.Cost.WRs + revoke.Cost.WRs,
				Registrations: grant.Cost.Registrations,
				Invalidations: revoke.Cost.Invalidations,
			}, x.Plan.Cost)
			require.Len(t, e.Remotes(), x.Plan.Cost.Registrations)
			require.NoError(t, p.a.ep.Do(t.Context(), &e.Grant))
			require.NoError(t, p.a.ep.Do(t.Context(), &e.Revoke))
		}
	})
}

// apart makes n pieces of a page with a page between each two.
func apart(r *transport.Region, n int) (list []transport.Piece) {
	for i := range n {
		list = append(list, r.Piece(uint64(i)*8192, 4096))
	}
	return list
}
