package exchange

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/test/kerneltest"
)

// roleVar is an environment variable. If it is set, this test binary runs as a
// server, with its sockets from file descriptor 3 on.
const roleVar = "TENON_EXCHANGE_TEST_ROLE"

// targetVar has the address to which the role proxy sends what it receives.
const targetVar = "TENON_EXCHANGE_TEST_TARGET"

func TestMain(m *testing.M) {
	role, sockets, _ := strings.Cut(os.Getenv(roleVar), " ")
	if role == "" {
		os.Exit(m.Run())
	}
	n, _ := strconv.Atoi(sockets)
	switch role {
	case "hold":
		hold()
	case "push":
		push(listenerAt(3))
	case "http":
		serveHTTP(listenerAt(3), listenerAt(4))
	case "beside":
		serveBeside()
	default:
		for i := range n {
			go serve(role, 3+i)
		}
	}
	select {}
}

func listenerAt(fd uintptr) net.Listener {
	l, err := net.FileListener(os.NewFile(fd, "listener"))
	check(err)
	return l
}

// check ends a server after an error.
func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve accepts connections at a socket. It calls the kernel directly, because the
// runtime of Go would answer late.
func serve(role string, listener int) {
	check(unix.SetNonblock(listener, false))
	check(unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)) // connections inherit it
	for {
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		check(err)
		check(unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
		answer := map[string]func(fd int){
			"known": answerInTime, "in-turn": answerInTurn, "echo": echo, "echo-raw": echoRaw, "after-all": answerAfterAll, "in-pieces": answerInPieces, "io_uring": answerByRing, "proxy": forward,
		}[role]
		go func() {
			answer(fd)
			_ = unix.Close(fd)
		}()
	}
}

// answerSize is the length of an answer of the role known: how long it took, and the
// least and the most that the exchange before it took.
const answerSize = 3 * 8

// answerInTime answers each request after the time that it asks for. The answer says
// how long that was, from the arrival of the request by the kernel's time stamp to the
// moment before the answer.
//
// The hooks are a few thousand instructions of the kernel away from both moments. On an
// emulated CPU, or one that stops meanwhile, these take longer than a bucket is wide. So
// the next answer also says what is certain: the request came to its hook between its
// time stamp and the end of the read, and the answer to its own during the write.
func answerInTime(fd int) {
	message, control, answer := make([]byte, 8), make([]byte, 256), make([]byte, answerSize)
	var least, most time.Duration // of the exchange before
	for {
		n, used, _, _, err := unix.Recvmsg(fd, message, control, 0)
		if err != nil || n != len(message) {
			return
		}
		read := wallClock()
		arrived, stamped := stampIn(control[:used])
		if !stamped {
			arrived = read
		}
		rest := arrived + time.Duration(binary.LittleEndian.Uint64(message)) - wallClock()
		if rest > 0 {
			nap := unix.NsecToTimespec(int64(rest))
			_ = unix.Nanosleep(&nap, nil)
		}
		begun := wallClock()
		for i, d := range []time.Duration{begun - arrived, least, most} {
			binary.LittleEndian.PutUint64(answer[8*i:], uint64(d))
		}
		if _, err := unix.Write(fd, answer); err != nil {
			return
		}
		if least, most = begun-read, wallClock()-arrived; !stamped {
			most = time.Hour
		}
	}
}

// answerInTurn works for the time that a request asks for, and answers it, before it
// reads the next one.
func answerInTurn(fd int) {
	for message := make([]byte, 8); ; {
		if n, err := unix.Read(fd, message); err != nil || n != len(message) {
			return
		}
		time.Sleep(time.Duration(binary.LittleEndian.Uint64(message)))
		if _, err := unix.Write(fd, message); err != nil {
			return
		}
	}
}

// stampIn returns the time stamp of the data that was received. It returns false if the
// kernel had switched time stamps off until now.
func stampIn(control []byte) (at time.Duration, stamped bool) {
	all, err := unix.ParseSocketControlMessage(control)
	check(err)
	for _, m := range all {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Duration(binary.LittleEndian.Uint64(m.Data))*time.Second + time.Duration(binary.LittleEndian.Uint64(m.Data[8:])), true
		}
	}
	return 0, false
}

func wallClock() time.Duration {
	var t unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_REALTIME, &t))
	return time.Duration(t.Nano())
}

func echo(fd int) {
	for message := make([]byte, 8); ; {
		if n, err := unix.Read(fd, message); err != nil || n == 0 {
			return
		}
		if _, err := unix.Write(fd, message); err != nil {
			return
		}
	}
}

// forward keeps each request for 50 ms, and then gives it to another server.
func forward(fd int) {
	c, err := net.Dial("tcp", os.Getenv(targetVar))
	check(err)
	defer c.Close()
	message, answer := make([]byte, 8), make([]byte, answerSize)
	for {
		if n, err := unix.Read(fd, message); err != nil || n != len(message) {
			return
		}
		time.Sleep(50 * time.Millisecond)
		if _, err := c.Write(message); err != nil {
			return
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			return
		}
		if _, err := unix.Write(fd, answer); err != nil {
			return
		}
	}
}

// echoRaw is echo without the scheduler of Go, whose work differs from request to
// request.
func echoRaw(fd int) {
	runtime.LockOSThread()
	debug.SetGCPercent(-1) // a collection would wait for this thread
	for message := make([]byte, 8); rawCall(unix.SYS_READ, fd, message) && rawCall(unix.SYS_WRITE, fd, message); {
	}
}

// rawAsk sends a request of 8 bytes to a server that echoes, and reads the answer.
func rawAsk(fd int) bool {
	var message [8]byte
	return rawCall(unix.SYS_WRITE, fd, message[:]) && rawCall(unix.SYS_READ, fd, message[:])
}

// rawCall reads or writes all bytes of a message with one system call.
func rawCall(call uintptr, fd int, message []byte) bool {
	for {
		n, _, e := syscall.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&message[0])), uintptr(len(message)))
		if e != syscall.EINTR {
			return e == 0 && n == uintptr(len(message))
		}
	}
}

// answerAfterAll answers after the client has ended its stream.
func answerAfterAll(fd int) {
	for message := make([]byte, 1<<16); ; {
		n, err := unix.Read(fd, message)
		if err != nil {
			return
		}
		if n == 0 {
			break
		}
	}
	_, _ = unix.Write(fd, []byte("all"))
}

// answerInPieces answers a request at once with 10 pieces, with 50 ms between them.
func answerInPieces(fd int) {
	for message := make([]byte, 8); ; {
		if n, err := unix.Read(fd, message); err != nil || n == 0 {
			return
		}
		for range 10 {
			if _, err := unix.Write(fd, message); err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// push sends data without a request.
func push(l net.Listener) {
	for {
		c, err := l.Accept()
		check(err)
		go func() {
			defer c.Close()
			for {
				if _, err := c.Write([]byte("news")); err != nil {
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		}()
	}
}

// serveHTTP serves HTTP/1.1, with TLS at the second listener, and HTTP/2 without
// TLS. It answers after the time that a request asks for.
func serveHTTP(plain, secure net.Listener) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := time.ParseDuration(r.URL.Query().Get("after"))
		if d > 0 {
			time.Sleep(d)
		}
		fmt.Fprint(w, "done")
	})
	both := new(http.Protocols)
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	for l, start := range map[net.Listener]func(*httptest.Server){plain: (*httptest.Server).Start, secure: (*httptest.Server).StartTLS} {
		s := httptest.NewUnstartedServer(answer)
		_ = s.Listener.Close()
		s.Listener = l
		if l == plain {
			s.Config.Protocols = both
		}
		start(s)
	}
}

// serveBeside echoes datagrams at the first socket, and data at the second, which is
// a UNIX socket.
func serveBeside() {
	datagrams, err := net.FilePacketConn(os.NewFile(3, "datagrams"))
	check(err)
	go func() {
		for message := make([]byte, 8); ; {
			n, from, err := datagrams.ReadFrom(message)
			check(err)
			_, err = datagrams.WriteTo(message[:n], from)
			check(err)
		}
	}()
	local := listenerAt(4)
	for {
		c, err := local.Accept()
		check(err)
		f, err := c.(*net.UnixConn).File()
		check(err)
		check(unix.SetNonblock(int(f.Fd()), false))
		go echo(int(f.Fd()))
	}
}

// hold measures a port until this process is killed. It prints the ids of its
// programs.
func hold() {
	tree, err := cgroup.Detect("/proc")
	check(err)
	p, err := Open(Options{CgroupVersion: tree.VersionOf("cpu")})
	check(err)
	_, err = p.Track(1, 1, Bounds())
	check(err)
	for _, name := range []string{exchangeProgTenonArrived, p.answers} {
		info, err := p.objects.Programs[name].Info()
		check(err)
		id, _ := info.ID()
		fmt.Println(uint32(id))
	}
	fmt.Println("holds")
	time.Sleep(time.Hour)
	runtime.KeepAlive(p)
}

// skipLacking skips a test because a kernel feature or a permission is missing.
func skipLacking(t testing.TB, why error) {
	t.Helper()
	kerneltest.SkipLacking(t, "BPF", why)
}

// A stage is a cgroup that exists for one test, with servers in it.
type stage struct{ kerneltest.Stage }

func newStage(t testing.TB) stage {
	t.Helper()
	return stage{kerneltest.NewStage(t, "exchange", skipLacking)}
}

// A socket is a listener or another socket that a server can inherit.
type socket interface {
	File() (*os.File, error)
	Close() error
}

// listen opens a port of loopback, with IPv6 if the number is odd.
func (s stage) listen(number int) (l *net.TCPListener, port int) {
	s.Helper()
	address := "127.0.0.1:0"
	if number%2 == 1 && hasIPv6() {
		address = "[::1]:0"
	}
	made, err := net.Listen("tcp", address)
	if err != nil {
		s.Fatal(err)
	}
	l = made.(*net.TCPListener)
	return l, l.Addr().(*net.TCPAddr).Port
}

func hasIPv6() bool {
	l, err := net.Listen("tcp", "[::1]:0")
	if err == nil {
		_ = l.Close()
	}
	return err == nil
}

// start runs this test binary as a server in a group until the test ends. The
// server takes over the sockets.
func (s stage) start(role, group string, sockets ...socket) (pid int) {
	s.Helper()
	cmd := kerneltest.Command(roleVar, fmt.Sprintf("%s %d", role, len(sockets)))
	cmd.Stderr = os.Stderr
	for _, l := range sockets {
		f, err := l.File()
		if err != nil {
			s.Fatal(err)
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	pid = s.Start(group, cmd)
	for _, l := range sockets {
		if err := l.Close(); err != nil {
			s.Fatal(err)
		}
	}
	return pid
}

// open opens a probe, which is closed at the end of the test.
func (s stage) open() *Probe {
	s.Helper()
	p, err := Open(Options{CgroupVersion: s.CgroupVersion()})
	if errors.Is(err, os.ErrPermission) || errors.Is(err, ErrUnsupported) {
		skipLacking(s, err)
	}
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := p.Close(); err != nil {
			s.Error(err)
		}
	})
	return p
}

func (s stage) track(p *Probe, id uint64, port int, targets ...time.Duration) *Service {
	s.Helper()
	service, err := p.Track(id, port, Bounds(targets...))
	if err != nil {
		s.Fatal(err)
	}
	return service
}

func (s stage) read(service *Service) Reading {
	s.Helper()
	r, err := service.Read()
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// dial connects to a server until the test ends.
func (s stage) dial(to net.Addr) net.Conn {
	s.Helper()
	c, err := net.Dial(to.Network(), to.String())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(4 * time.Minute)); err != nil {
		s.Fatal(err)
	}
	return c
}

// total returns the number of exchanges.
func total(r Reading) (n uint64) {
	for _, count := range r.Counts {
		n += count
	}
	return n
}

// over returns the number of exchanges that were longer than one of the bounds.
func over(r Reading, bound time.Duration) (n uint64) {
	for i, count := range r.Counts {
		if i > 0 && r.Bounds[i-1] >= bound {
			n += count
		}
	}
	return n
}
