package perf

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReported(t *testing.T) {
	v, err := reported(` Data ex. method : rdma_cm
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      200              370.34             113.08 		   0.001809
---------------------------------------------------------------------------------------
`, false)
	require.NoError(t, err)
	require.Equal(t, 113.08, v)
	v, err = reported(` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 4096    200          97.34          4905.75      104.94   	       261.74      	741.01 		4894.85 		4905.75
`, true)
	require.NoError(t, err)
	require.Equal(t, 104.94, v)
	_, err = reported("Events feature not available on WRITE verb\n", false)
	require.ErrorContains(t, err, "not available")
	_, err = reported(" #bytes #iterations\n", false)
	require.Error(t, err)
}

func TestRatioOf(t *testing.T) {
	r := ratioOf([]float64{1, 1, 1, 1, 1, 1, 1, 1, 1})
	require.Equal(t, Ratio{1, 1, 1}, r)
	r = ratioOf([]float64{0.8, 0.9, 0.95, 1, 1, 1.05, 1.1, 1.2, 1})
	require.Equal(t, 1.0, r.Median)
	require.GreaterOrEqual(t, r.Low, 0.9)
	require.LessOrEqual(t, r.High, 1.1)
	require.Less(t, r.Low, r.High)
	require.False(t, r.Wide())
	require.Equal(t, Ratio{}, ratioOf(nil))
	require.Equal(t, 1.5, median([]float64{2, 1}))
}

func TestVerdicts(t *testing.T) {
	bandwidth, latency := Tests[0], Tests[2]
	require.Equal(t, "reached", bandwidth.Verdict(Ratio{0.9, 0.85, 0.96}))
	require.Equal(t, "short", bandwidth.Verdict(Ratio{0.9, 0.85, 0.94}))
	require.Equal(t, "reached", bandwidth.Verdict(Ratio{1.3, 1.2, 1.4}))
	require.Equal(t, "reached", latency.Verdict(Ratio{1.2, 1.1, 1.3}))
	require.Equal(t, "short", latency.Verdict(Ratio{1.2, 1.16, 1.3}))
	require.Equal(t, "reached", latency.Verdict(Ratio{0.5, 0.4, 0.6}))
	require.Contains(t, latency.Verdict(Ratio{1, 0.8, 1.2}), "no verdict")
}
