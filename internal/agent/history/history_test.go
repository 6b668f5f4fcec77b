package history

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

const (
	firstDay    = 20_000
	firstMinute = int64(firstDay * minutesOfDay)
)

// busy makes minutes of a node on which every column of every workload moves.
type busy struct {
	random    *rand.Rand
	workloads int
	values    map[string][]int64
}

func newBusy(workloads int) *busy {
	return &busy{random: rand.New(rand.NewPCG(1, 2)), workloads: workloads, values: map[string][]int64{}}
}

// churn adds jobs to a minute: each lasts ten minutes, 25 of them run at a time, and every
// fourth workload waits for eight of them.
func (b *busy) churn(m *Minute) {
	job := func(n int64) string {
		x := rand.New(rand.NewPCG(uint64(n), 3))
		return fmt.Sprintf("kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod%08x_%04x_4b5c_9d8e_%012x.slice", x.Uint32(), x.Uint32()>>16, x.Uint64()>>16)
	}
	first := m.At * 25 / 10
	for n := first; n < first+25; n++ {
		m.Rows[Work] = append(m.Rows[Work], b.row(job(n), []int64{3, 500, 900, 0, 0, 200, 0, 4000, 14, 2, 1}, 0.15))
	}
	m.Rows[Pair] = m.Rows[Pair][:0]
	for i := 0; i < b.workloads; i += 4 {
		for _, n := range b.random.Perm(25)[:8] {
			m.Rows[Pair] = append(m.Rows[Pair], b.row(PairName(m.Rows[Work][i].Name, job(first+int64(n))), []int64{60}, 0.5))
		}
	}
}

// row moves the values of a row: each is its mean and noise of a share of it.
func (b *busy) row(name string, means []int64, share float64) Row {
	v := make([]int64, len(means))
	for i, mean := range means {
		v[i] = max(mean+int64(float64(mean)*share*b.random.NormFloat64()), 0)
	}
	return Row{name, v}
}

func (b *busy) minute(at int64) Minute {
	m := Minute{At: at}
	m.Rows[Node] = []Row{b.row("", []int64{20_000, 30_000, 20, 60_000, 50_000, 9000, 200, 100, 900, 300, 12_000, 30_000}, 0.1)}
	for i := range b.workloads {
		id := fmt.Sprintf("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%08x_0f3a_4b5c_9d8e_%012x.slice", i, i*i)
		r := b.row(id, []int64{0, 150, 300, 0, 0, 0, 0, 40, 0, 2, 1}, 0.15)
		r.Values[0], r.Values[3], r.Values[4] = int64(i%3), 250, 1000 // class, request and limit
		r.Values[5] = 500 + int64(2*b.random.NormFloat64())
		if i%5 == 0 {
			r.Values[6] = int64(b.random.ExpFloat64() * 800)
		}
		r.Values[8] = 12 + int64(b.random.NormFloat64())
		m.Rows[Work] = append(m.Rows[Work], r)
		if i%4 == 0 && b.random.IntN(10) > 0 {
			m.Rows[Pair] = append(m.Rows[Pair], b.row(PairName(id, "be"+fmt.Sprint(i%7)), []int64{60}, 0.5))
		}
	}
	return m
}

// odd makes minutes with what is rare: names that come and go, values that are not
// known or large, and holes.
func odd(random *rand.Rand, at int64) Minute {
	m := Minute{At: at}
	for kind := range Columns {
		for i := range random.IntN(6) {
			r := Row{Name: fmt.Sprint("row", random.IntN(3)*10+i), Values: make([]int64, len(Columns[kind]))}
			for c := range r.Values {
				switch random.IntN(6) {
				case 0:
					r.Values[c] = Absent
				case 1:
					r.Values[c] = random.Int64()
				case 2:
					r.Values[c] = 0
				default:
					r.Values[c] = random.Int64N(1000)
				}
			}
			m.Rows[kind] = append(m.Rows[kind], r)
		}
	}
	return m
}

func open(t testing.TB, dir string, most unit.Bytes) *Store {
	t.Helper()
	s, err := Open(dir, most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func appendAll(t testing.TB, s *Store, all []Minute) {
	t.Helper()
	for _, m := range all {
		if err := s.Append(m); err != nil {
			t.Fatal(err)
		}
	}
}

// readAll returns copies of the minutes of a history.
func readAll(t testing.TB, dir string) (all []Minute, damages []Damage) {
	t.Helper()
	damages, err := Read(dir, 0, 1<<40, func(m *Minute) error {
		all = append(all, clone(*m))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, damages
}

// clone copies a minute, with the rows in the order of their names.
func clone(m Minute) Minute {
	for kind := range m.Rows {
		m.Rows[kind] = slices.Clone(m.Rows[kind])
		for i := range m.Rows[kind] {
			m.Rows[kind][i].Values = slices.Clone(m.Rows[kind][i].Values)
		}
		slices.SortFunc(m.Rows[kind], func(a, b Row) int { return compare(a.Name, b.Name) })
	}
	return m
}

func compare(a, b string) int {
	if a < b {
		return -1
	} else if a > b {
		return 1
	}
	return 0
}

func equal(a, b Minute) bool {
	a, b = clone(a), clone(b)
	for kind := range a.Rows {
		same := slices.EqualFunc(a.Rows[kind], b.Rows[kind], func(a, b Row) bool { return a.Name == b.Name && slices.Equal(a.Values, b.Values) })
		if !same {
			return false
		}
	}
	return a.At == b.At
}

func oddMinutes(seed uint64, n int, at int64) (all []Minute) {
	random := rand.New(rand.NewPCG(seed, 0))
	for range n {
		at += 1 + int64(random.IntN(3))
		all = append(all, odd(random, at))
	}
	return all
}

// TestMinutesComeBackAsTheyWere writes over midnight, with a store that begins anew
// now and then.
func TestMinutesComeBackAsTheyWere(t *testing.T) {
	for seed := range uint64(20) {
		dir := t.TempDir()
		all := oddMinutes(seed, 60, firstMinute+minutesOfDay-60)
		for i := 0; i < len(all); i += 17 {
			s := open(t, dir, 1<<30)
			appendAll(t, s, all[i:min(i+17, len(all))])
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		got, damages := readAll(t, dir)
		if !slices.EqualFunc(got, all, equal) || damages != nil {
			t.Fatalf("seed %d: %d minutes of %d, %v", seed, len(got), len(all), damages)
		}
		if files, err := list(dir); err != nil || len(files) != 2 {
			t.Fatalf("%v, %v", files, err)
		}
		n := 0
		if _, err := Read(dir, all[5].At, all[9].At, func(*Minute) error { n++; return nil }); err != nil || n != 4 {
			t.Errorf("four minutes are asked for, and %d come: %v", n, err)
		}
	}
}

// TestATearLosesOneMinute cuts the file at every byte: what was whole is read, and
// the next store goes on behind it.
func TestATearLosesOneMinute(t *testing.T) {
	dir := t.TempDir()
	all := oddMinutes(1, 6, firstMinute)
	s := open(t, dir, 1<<30)
	ends := []int64{}
	for _, m := range all[:5] {
		appendAll(t, s, []Minute{m})
		ends = append(ends, s.size)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := list(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	name := files[0].in(dir)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	headerEnds := len(text) - int(ends[4]-headerSize(t))
	for cut := range len(text) {
		torn := filepath.Join(dir, fmt.Sprint(cut))
		if err := os.Mkdir(torn, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(torn, filepath.Base(name)), text[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		whole := 0
		for _, end := range ends {
			if int64(cut) >= end {
				whole++
			}
		}
		got, damages := readAll(t, torn)
		if !slices.EqualFunc(got, all[:whole], equal) {
			t.Fatalf("cut at %d: %d minutes, want %d", cut, len(got), whole)
		}
		between := cut != headerEnds && (whole == 0 || int64(cut) != ends[whole-1])
		if (len(damages) > 0) != (between && cut > 0) {
			t.Fatalf("cut at %d: %v", cut, damages)
		}
		s := open(t, torn, 1<<30)
		appendAll(t, s, all[5:])
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if got, _ := readAll(t, torn); !slices.EqualFunc(got, append(slices.Clone(all[:whole]), all[5]), equal) {
			t.Fatalf("cut at %d: after one more minute there are %d", cut, len(got))
		}
	}
}

func headerSize(t *testing.T) int64 {
	t.Helper()
	text, err := header{Day: firstDay, Columns: Columns[:]}.begin()
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(text))
}

// TestADamagedByteGivesNoWrongValue changes every byte of a file. Minutes behind
// the change are lost, and none is another one.
func TestADamagedByteGivesNoWrongValue(t *testing.T) {
	dir := t.TempDir()
	all := oddMinutes(2, 5, firstMinute)
	s := open(t, dir, 1<<30)
	appendAll(t, s, all)
	files, err := list(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(files[0].in(dir))
	if err != nil {
		t.Fatal(err)
	}
	for i := int(headerSize(t)); i < len(text); i++ {
		for _, flip := range []byte{1, 0x80, 0xff} {
			damaged := slices.Clone(text)
			damaged[i] ^= flip
			n := 0
			lost, err := readDay(damaged, 0, 1<<40, func(m *Minute) error {
				if !equal(*m, all[n]) {
					t.Fatalf("byte %d: minute %d is another one", i, n)
				}
				n++
				return nil
			})
			if err != nil || n == len(all) || lost == 0 {
				t.Fatalf("byte %d: %d minutes, %d bytes lost, %v", i, n, lost, err)
			}
		}
	}
}

// TestAWeekOfAHundredWorkloadsIsSmall computes a week from a day in which every
// column moves in every minute, from such a day with 3,600 short jobs, and from a day of
// idle workloads. No row is lost: with the jobs, a day has 90,000 pairs.
func TestAWeekOfAHundredWorkloadsIsSmall(t *testing.T) {
	for _, c := range []struct {
		name        string
		idle, churn bool
		most        int64
	}{{"busy", false, false, 5 << 20}, {"busy, with short jobs", false, true, 20 << 20}, {"idle", true, false, 1 << 20}} {
		s := open(t, t.TempDir(), 1<<30)
		b := newBusy(100)
		still := b.minute(firstMinute)
		wrote := 0
		for i := range int64(minutesOfDay) {
			m := still
			if !c.idle {
				m = b.minute(0)
			}
			m.At = firstMinute + i
			if c.churn {
				b.churn(&m)
			}
			appendAll(t, s, []Minute{m})
			wrote += len(m.Rows[Work]) + len(m.Rows[Pair])
		}
		files, err := list(s.dir)
		if err != nil || len(files) > 1 != c.churn {
			t.Errorf("%s: %v, %v", c.name, files, err)
		}
		var week int64
		for _, f := range files {
			week += 7 * f.size
		}
		t.Logf("%s: %.2f MiB a week", c.name, float64(week)/(1<<20))
		if week > c.most {
			t.Errorf("%s: a week has %d bytes, more than %d", c.name, week, c.most)
		}
		damages, err := Read(s.dir, 0, 1<<40, func(m *Minute) error { wrote -= len(m.Rows[Work]) + len(m.Rows[Pair]); return nil })
		if wrote != 0 || damages != nil || err != nil {
			t.Errorf("%s: %d rows are lost, %v, %v", c.name, wrote, damages, err)
		}
	}
}

func TestOldDaysMakeRoom(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 20_000)
	b := newBusy(20)
	var full int
	for day := range int64(6) {
		for i := range int64(10) {
			appendAll(t, s, []Minute{b.minute(firstMinute + day*minutesOfDay + i)})
		}
		files, err := list(dir)
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, f := range files {
			sum += f.size
		}
		if sum > 20_000 || len(files) == 0 || files[len(files)-1].day != firstDay+day {
			t.Fatalf("day %d: %v", day, files)
		}
	}
	got, _ := readAll(t, dir)
	if len(got) == 60 || len(got) < 20 {
		t.Errorf("%d minutes are kept", len(got))
	}
	for i := range int64(200) { // one day alone is too large
		switch err := s.Append(b.minute(firstMinute + 5*minutesOfDay + 10 + i)); {
		case errors.Is(err, ErrFull):
			full++
		case err != nil:
			t.Fatal(err)
		}
	}
	if full == 0 {
		t.Error("a day has more than all days may have")
	}
	appendAll(t, s, []Minute{b.minute(firstMinute + 6*minutesOfDay)})
}

func TestAClockThatIsSetBackLeavesAHole(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1<<30)
	b := newBusy(2)
	day := firstMinute + minutesOfDay
	appendAll(t, s, []Minute{b.minute(day), b.minute(day + 5)})
	for _, at := range []int64{day + 5, day + 4, -1} {
		if err := s.Append(b.minute(at)); !errors.Is(err, ErrPast) {
			t.Errorf("minute %d: %v", at-day, err)
		}
	}
	appendAll(t, s, []Minute{b.minute(day + 6)})
	got, _ := readAll(t, dir)
	if len(got) != 3 || got[1].At != day+5 || got[2].At != day+6 {
		t.Errorf("%d minutes", len(got))
	}
}

// TestAClockThatRanAheadCostsNoLaterMinute writes two minutes of a later day, and then
// those of now, also after a restart. The size of all files is kept.
func TestAClockThatRanAheadCostsNoLaterMinute(t *testing.T) {
	dir := t.TempDir()
	b := newBusy(20)
	s := open(t, dir, 20_000)
	const ahead = firstMinute + 27_000*minutesOfDay // in 2098
	appendAll(t, s, []Minute{b.minute(firstMinute), b.minute(ahead), b.minute(ahead + 1), b.minute(firstMinute + 3)})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, 20_000)
	appendAll(t, s, []Minute{b.minute(firstMinute + 4), b.minute(firstMinute + minutesOfDay)})
	got, damages := readAll(t, dir)
	var at []int64
	for _, m := range got {
		at = append(at, m.At-firstMinute)
	}
	if want := []int64{0, 3, 4, minutesOfDay, ahead - firstMinute, ahead + 1 - firstMinute}; !slices.Equal(at, want) || damages != nil {
		t.Errorf("minutes %v, want %v, %v", at, want, damages)
	}
	var err error
	for i := int64(1); err == nil && i < 1000; i++ {
		err = s.Append(b.minute(firstMinute + minutesOfDay + i))
	}
	files, listed := list(dir)
	if !errors.Is(err, ErrFull) || listed != nil || len(files) != 1 || files[0].day != firstDay+1 {
		t.Errorf("the day of now gets the room last: %v, %v, %v", files, listed, err)
	}
}

// TestFilesOfOtherVersionsAreRead writes a file with other columns. The store begins a second file for its day.
func TestFilesOfOtherVersionsAreRead(t *testing.T) {
	dir := t.TempDir()
	h := header{Day: firstDay, Columns: [][]string{{"room_cpu_mcpu", "new"}, {"wait_ms"}, {}}}
	text, err := h.begin()
	if err != nil {
		t.Fatal(err)
	}
	m := Minute{At: firstMinute + 3}
	m.Rows[Node] = []Row{{"", []int64{77, 5}}}
	m.Rows[Work] = []Row{{"a", []int64{9}}}
	if text, _, err = newDay(h).appendFrame(text, &m); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fileName{day: firstDay}.in(dir), text, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, 1<<30)
	appendAll(t, s, []Minute{newBusy(1).minute(firstMinute + 9)})
	got, damages := readAll(t, dir)
	if len(got) != 2 || damages != nil {
		t.Fatalf("%d minutes, %v", len(got), damages)
	}
	values := got[0].Rows[Node][0].Values
	if values[Column(Node, "room_cpu_mcpu")] != 77 || values[Column(Node, "cpu_mcpu")] != Absent || got[0].Rows[Work][0].Values[Column(Work, "wait_ms")] != 9 {
		t.Errorf("%+v", got[0])
	}
	if got[1].At != firstMinute+9 || len(got[1].Rows[Work]) != 1 {
		t.Errorf("%+v", got[1])
	}
}

func TestARowThatFitsNowhereIsRefused(t *testing.T) {
	s := open(t, t.TempDir(), 1<<30)
	good := newBusy(1).minute(firstMinute)
	short, twice := clone(good), clone(good)
	short.Rows[Work][0].Values = short.Rows[Work][0].Values[1:]
	twice.Rows[Work] = append(twice.Rows[Work], twice.Rows[Work][0])
	for _, bad := range []Minute{short, twice} {
		if err := s.Append(bad); err == nil {
			t.Errorf("%+v was written", bad)
		}
	}
	appendAll(t, s, []Minute{good})
	if got, damages := readAll(t, s.dir); len(got) != 1 || !equal(got[0], good) || damages != nil {
		t.Errorf("%+v, %v", got, damages)
	}
}

// TestTooManyNewRowsAreCounted writes a minute with more new names than a frame may have.
// The next minute has some more of them.
func TestTooManyNewRowsAreCounted(t *testing.T) {
	s := open(t, t.TempDir(), 1<<30)
	m := newBusy(1).minute(firstMinute)
	for i := range 2000 {
		m.Rows[Pair] = append(m.Rows[Pair], Row{PairName(fmt.Sprintf("%0400d", i), "b"), []int64{10}})
	}
	m.Rows[Pair] = append(m.Rows[Pair], Row{fmt.Sprintf("%05000d", 1), []int64{10}})
	all := len(m.Rows[Pair])
	appendAll(t, s, []Minute{m})
	left := s.Left()
	got, _ := readAll(t, s.dir)
	if left < 500 || len(got) != 1 || len(got[0].Rows[Pair]) != all-left {
		t.Fatalf("%d of %d rows are left out, and %d are read", left, all, len(got[0].Rows[Pair]))
	}
	m.At++
	appendAll(t, s, []Minute{m})
	if got, _ := readAll(t, s.dir); s.Left() != 1 || len(got[1].Rows[Pair]) != all-1 {
		t.Errorf("%d rows are left out, and %d are read", s.Left(), len(got[1].Rows[Pair]))
	}
}

func FuzzReadDay(f *testing.F) {
	d := newDay(header{Day: firstDay, Columns: Columns[:]})
	text, err := d.begin()
	if err != nil {
		f.Fatal(err)
	}
	for _, m := range oddMinutes(3, 4, firstMinute) {
		if text, _, err = d.appendFrame(text, &m); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(text)
	f.Add([]byte(magic + `{"day":1,"columns":[["a"]]}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		last := int64(-1)
		_, err := readDay(text, 0, 1<<60, func(m *Minute) error {
			if m.At <= last {
				t.Fatalf("minute %d comes after %d", m.At, last)
			}
			last = m.At
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		// The checksum keeps random bytes from the frames, so they are tried without it.
		if h, frames, err := readHeader(text); err == nil {
			_ = newDay(h).readFrame(frames, func(int, int, []int64) {})
		}
	})
}

// BenchmarkReadAWeek reads seven days of a hundred busy workloads.
func BenchmarkReadAWeek(b *testing.B) {
	dir := b.TempDir()
	s := open(b, dir, 1<<30)
	made := newBusy(100)
	for i := range int64(7 * minutesOfDay) {
		appendAll(b, s, []Minute{made.minute(firstMinute + i)})
	}
	for b.Loop() {
		minutes := 0
		if _, err := Read(dir, 0, 1<<40, func(*Minute) error { minutes++; return nil }); err != nil || minutes != 7*minutesOfDay {
			b.Fatal(minutes, err)
		}
	}
}

func BenchmarkAppendAMinute(b *testing.B) {
	s := open(b, b.TempDir(), 1<<40)
	made := newBusy(100)
	var all []Minute
	for range 50 {
		all = append(all, made.minute(0))
	}
	at := firstMinute
	for b.Loop() {
		m := all[at%50]
		m.At = at
		if err := s.Append(m); err != nil {
			b.Fatal(err)
		}
		at++
	}
}
