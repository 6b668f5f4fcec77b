// Package pi computes digits of π with many threads, like the job of the
// published experiment on CPU pinning. It checks its digits with a second
// formula.
package pi

import (
	"fmt"
	"math"
	"math/big"
	"runtime"
	"strings"
	"sync"
	"time"
)

// guard is the number of extra bits after the last digit. Each of the n terms
// is too small by less than 4 units of the last bit. For n below 2^50, the sum
// of these errors is far less than a digit.
const guard = 64

// MaxThreads is the maximum number of threads. The Go runtime ends a program with
// 10,000 threads.
const MaxThreads = 9000

// MaxDigits is the maximum number of digits. The errors of the terms for so
// many digits add up to less than the guard bits.
const MaxDigits = 10_000_000

// A Task is a computation of π.
type Task struct {
	Threads int
	Digits  int // number of digits after the decimal point
	Rounds  int // times that each thread computes its terms
	// Ready is called when all threads exist and none has begun to compute. It
	// may be nil.
	Ready func()
}

// Check returns an error if a field is out of range. The error names the field
// and the range.
func (t Task) Check() error {
	switch {
	case t.Threads < 1 || t.Threads > MaxThreads:
		return fmt.Errorf("%d threads: want 1 to %d", t.Threads, MaxThreads)
	case t.Digits < 1 || t.Digits > MaxDigits:
		return fmt.Errorf("%d digits: want 1 to %d", t.Digits, MaxDigits)
	case t.Rounds < 1:
		return fmt.Errorf("%d rounds: want 1 or more", t.Rounds)
	}
	return nil
}

// Compute returns π with the digits of the task, such as "3.1415" for four. The
// last digit is not rounded. Compute uses the series of Bailey, Borwein and
// Plouffe (Mathematics of Computation 66, 1997). It gives the terms to the
// threads in turn, so that no term is lost. Each thread is a thread of the
// system, and all of them exist before the first one begins to compute.
func (t Task) Compute() string {
	bits := bitsOf(t.Digits)
	terms := int(bits)/4 + 1
	sums := make([]*big.Int, t.Threads)
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	ready.Add(t.Threads)
	for i := range t.Threads {
		done.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with its work
			ready.Done()
			<-begin
			for range t.Rounds {
				sums[i] = partialSum(i, t.Threads, terms, bits)
			}
		})
	}
	ready.Wait()
	if t.Ready != nil {
		t.Ready()
	}
	close(begin)
	done.Wait()
	sum := new(big.Int)
	for _, s := range sums {
		sum.Add(sum, s)
	}
	return text(sum, bits, t.Digits)
}

func bitsOf(digits int) uint { return uint(math.Ceil(float64(digits)*math.Log2(10))) + guard }

// partialSum adds the terms first, first+step, … of π = Σ 16^−k (4/(8k+1) −
// 2/(8k+4) − 1/(8k+5) − 1/(8k+6)).
func partialSum(first, step, terms int, bits uint) *big.Int {
	sum, unit, part, divisor := new(big.Int), new(big.Int), new(big.Int), new(big.Int)
	one := big.NewInt(1)
	for k := first; k < terms; k += step {
		if uint(4*k) > bits {
			break
		}
		unit.Lsh(one, bits-uint(4*k))
		for _, f := range []struct{ times, plus int64 }{{4, 1}, {-2, 4}, {-1, 5}, {-1, 6}} {
			part.Quo(part.Mul(unit, divisor.SetInt64(f.times)), divisor.SetInt64(int64(8*k)+f.plus))
			sum.Add(sum, part)
		}
	}
	return sum
}

// text prints v·2^−bits with the given number of digits after the point.
func text(v *big.Int, bits uint, digits int) string {
	ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)
	s := ten.Rsh(ten.Mul(ten, v), bits).String()
	return s[:1] + "." + s[1:]
}

// A Report describes one computation and its result.
type Report struct {
	Threads int     `json:"threads_seen"` // of the process, before it computes
	Digits  int     `json:"digits"`
	Right   int     `json:"digits_right"` // by Machin's formula
	Seconds float64 `json:"seconds"`      // of the computation
	First   string  `json:"first"`        // digits
}

// Report computes the digits and checks them. threads returns how many threads
// this process has.
func (t Task) Report(threads func() (int, error)) (Report, error) {
	if err := t.Check(); err != nil {
		return Report{}, err
	}
	r := Report{Digits: t.Digits}
	var err error
	var begun time.Time
	t.Ready = func() {
		r.Threads, err = threads()
		begun = time.Now()
	}
	digits := t.Compute()
	r.Seconds = time.Since(begun).Seconds()
	r.Right, r.First = CorrectDigits(digits), digits[:min(len(digits), 10)]
	return r, err
}

// Machin returns the same digits by Machin's formula of 1706, π = 16
// arctan(1/5) − 4 arctan(1/239). Machin has no step in common with Compute.
func Machin(digits int) string {
	bits := bitsOf(digits)
	v := new(big.Int).Mul(arctan(5, bits), big.NewInt(16))
	return text(v.Sub(v, new(big.Int).Mul(arctan(239, bits), big.NewInt(4))), bits, digits)
}

// arctan returns arctan(1/x)·2^bits.
func arctan(x int64, bits uint) *big.Int {
	power := new(big.Int).Quo(new(big.Int).Lsh(big.NewInt(1), bits), big.NewInt(x))
	sum, part, square := new(big.Int), new(big.Int), big.NewInt(x*x)
	for n := int64(1); power.Sign() > 0; n += 2 {
		part.Quo(power, big.NewInt(n))
		if n%4 == 1 {
			sum.Add(sum, part)
		} else {
			sum.Sub(sum, part)
		}
		power.Quo(power, square)
	}
	return sum
}

// CorrectDigits returns how many leading digits after the point agree with
// Machin's formula.
func CorrectDigits(digits string) int {
	want := Machin(len(digits) - strings.Index(digits, ".") - 1)
	for i := range digits {
		if i >= len(want) || digits[i] != want[i] {
			return max(i-2, 0)
		}
	}
	return len(digits) - 2
}
