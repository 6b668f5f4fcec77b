package prospect

import "math"

// Interval returns the 90 % interval of the share of jobs that fail, between 0 and 1. It
// says how much other weeks of the same kind may differ. It is not known if fewer than
// three days were seen. By its formula it is one of 95 %. Of 200 made-up fleets, with one
// node or five and two weeks each, it holds risks above 0.5 % in 89 to 96 %, and smaller
// ones in 81 to 93 % (TestIntervalsOfRisksHoldTheTruth).
func (t Trials) Interval() (least, most float64, known bool) {
	if t.Free < 2 || t.Jobs == 0 {
		return 0, 1, false
	}
	share := float64(t.Failed) / float64(t.Jobs)
	reach := student(float64(t.Free)) * math.Sqrt(t.Variance) / float64(t.Jobs)
	least, most = max(share-reach, 0), min(share+reach, 1)
	// If no day had a failure, fewer than this share of days has one, with 95 %.
	rare := 1 - math.Pow(0.05, 1/float64(t.Free+1))
	switch t.Failed {
	case 0:
		most = rare
	case t.Jobs:
		least = 1 - rare
	}
	return least, most, true
}

// student returns the 97.5 % quantile of Student's t, by the expansion in Abramowitz and
// Stegun, 26.7.5. From 2 degrees of freedom on it is short by less than 4 %.
func student(degrees float64) float64 {
	const z = 1.959964
	return z + (z*z*z+z)/(4*degrees) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*degrees*degrees) +
		(3*math.Pow(z, 7)+19*math.Pow(z, 5)+17*z*z*z-15*z)/(384*degrees*degrees*degrees)
}

// interval returns the interval of a share, in thousandths, from n independent trials, for
// z standard deviations (E. B. Wilson, Probable inference, the law of succession, and
// statistical inference, 1927). Without a trial it is everything.
func interval(kept, judged int64, n, z float64) (least, most int64) {
	if judged == 0 {
		return 0, 1000
	}
	share := float64(kept) / float64(judged)
	middle := (share + z*z/(2*n)) / (1 + z*z/n)
	reach := z / (1 + z*z/n) * math.Sqrt(share*(1-share)/n+z*z/(4*n*n))
	return int64(math.Round(1000 * max(middle-reach, 0))), int64(math.Round(1000 * min(middle+reach, 1)))
}
