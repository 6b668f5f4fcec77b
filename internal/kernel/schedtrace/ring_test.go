package schedtrace

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The format files of Linux 6.18.
const (
	headerPage = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n" +
		"\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n" +
		"\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n" +
		"\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n"
	wakeFormat = "name: sched_wakeup\nID: 77\nformat:\n" +
		"\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n" +
		"\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n" +
		"\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n" +
		"\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n" +
		"\tfield:int target_cpu;\toffset:28;\tsize:4;\tsigned:1;\n\n" +
		"print fmt: \"comm=%s pid=%d\", REC->comm, REC->pid\n"
	dynamicFormat = "ID: 78\n" +
		"\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n" +
		"\tfield:__data_loc char[] comm;\toffset:8;\tsize:4;\tsigned:0;\n" +
		"\tfield:pid_t pid;\toffset:12;\tsize:4;\tsigned:1;\n" +
		"\tfield:int target_cpu;\toffset:16;\tsize:4;\tsigned:1;\n"
)

func reader(t *testing.T) *pageReader {
	t.Helper()
	r := &pageReader{decode: map[int]decode{}, names: map[string]string{}}
	var err error
	if r.page, err = parseLayout(headerPage); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{wakeFormat, dynamicFormat} {
		l, err := parseLayout(format)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.need([]string{"pid", "target_cpu"}, []string{"comm"}); err != nil {
			t.Fatal(err)
		}
		r.decode[int(l.id)] = decode{layout: l, kind: Wake}
	}
	return r
}

func words(ws ...uint32) []byte {
	var b []byte
	for _, w := range ws {
		b = binary.NativeEndian.AppendUint32(b, w)
	}
	return b
}

// wakeRecord is a sched_wakeup record of thread 42, "worker", sent to CPU 5.
func wakeRecord() []byte {
	b := append(words(77, 7), "worker\x00garbage\x00\x00"...)
	return append(b, words(42, 5)...)
}

func join(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// makePage makes a page that consists of a header and entries.
func makePage(stamp uint64, flags uint64, entries ...[]byte) []byte {
	data := join(entries...)
	b := binary.NativeEndian.AppendUint64(nil, stamp)
	b = binary.NativeEndian.AppendUint64(b, uint64(len(data))|flags)
	return append(append(b, data...), make([]byte, 64)...)
}

func TestEntriesOfAPageBecomeEvents(t *testing.T) {
	woken := Event{CPU: 3, Kind: Wake, Thread: Thread{TID: 42, Comm: "worker"}, Target: 5}
	at := func(times ...time.Duration) []Event {
		var events []Event
		for _, ns := range times {
			e := woken
			e.At = ns
			events = append(events, e)
		}
		return events
	}
	short := func(delta uint32) []byte { return join(words(delta<<5|8), wakeRecord()) } // 32 bytes
	for name, c := range map[string]struct {
		page []byte
		want []Event
	}{
		"nothing":              {page: makePage(1000, 0)},
		"deltas add up":        {page: makePage(1000, 0, short(0), short(5), short(7)), want: at(1000, 1005, 1012)},
		"a long delta":         {page: makePage(1000, 0, words(3<<5|entryExtend, 2), short(1)), want: at(1000 + 2<<27 + 3 + 1)},
		"an absolute time":     {page: makePage(1000, 0, words(3<<5|entryStamp, 2), short(1)), want: at(2<<27 + 3 + 1)},
		"a time of 60 bits":    {page: makePage(1<<60+1000, 0, words(3<<5|entryStamp, 2), short(1)), want: at(1<<60 + 2<<27 + 3 + 1)},
		"a record with length": {page: makePage(1000, 0, words(9<<5|entryLong, 4+32), wakeRecord()), want: at(1009)},
		"a discarded record":   {page: makePage(1000, 0, words(1<<5|entryPadding, 8), words(0), short(5)), want: at(1005)},
		"the end of the page":  {page: makePage(1000, 0, short(0), words(entryPadding), short(5)), want: at(1000)},
		"an event of others":   {page: makePage(1000, 0, words(2<<5|2), words(99, 0), short(5)), want: at(1007)},
		"a name elsewhere": {
			page: makePage(1000, 0, words(2<<5|7), words(78, 0, 7<<16|20, 42, 5), []byte("worker\x00\x00")), want: at(1002),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := reader(t).read(nil, 3, c.page)
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("error %v, (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestADamagedPageIsVoid(t *testing.T) {
	for name, page := range map[string][]byte{
		"events before it are lost": makePage(1000, missedEvents),
		"cut off in the head":       makePage(1000, 0)[:10],
		"more used than is there":   makePage(1000, 4000),
		"a record cut off":          makePage(1000, 0, words(7), wakeRecord()[:8]),
		"a length cut off":          makePage(1000, 0, words(entryExtend)),
		"an impossible length":      makePage(1000, 0, words(entryLong, 0xfffffff0), words(0)),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := reader(t).read(nil, 3, page); !errors.Is(err, ErrVoid) {
				t.Errorf("read as %v, error %v; want ErrVoid", got, err)
			}
		})
	}
}

func TestALossyBufferIsVoid(t *testing.T) {
	const sound = "entries: 129\noverrun: 0\ncommit overrun: 0\nbytes: 1280\noldest event ts:  2725.8\nnow ts:  2734.5\ndropped events: 0\nread events: 42\n"
	if err := complete(sound); err != nil {
		t.Errorf("complete statistics: %v", err)
	}
	for _, lossy := range []string{"overrun: 3", "commit overrun: 1", "dropped events: 88"} {
		if err := complete(sound + lossy + "\n"); !errors.Is(err, ErrVoid) {
			t.Errorf("%s: error %v, want ErrVoid", lossy, err)
		}
	}
}

func TestAFormatThatIsNotKnownIsRefused(t *testing.T) {
	l, err := parseLayout(wakeFormat)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.need([]string{"common_type"}, nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a number field of 2 bytes: error %v, want ErrUnsupported", err)
	}
	if err := l.need(nil, []string{"next_comm"}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a field that is not there: error %v, want ErrUnsupported", err)
	}
	if _, err := parseLayout("ID: many\n"); err == nil {
		t.Error("an id that is not a number is accepted")
	}
}
