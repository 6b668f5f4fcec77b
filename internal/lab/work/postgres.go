package work

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/lab/load/protocol"
	"tenon.sh/tenon/internal/lab/testbed"
)

// PostgresProgram is the server. initdb is in the same directory.
var PostgresProgram = Program{Name: "postgres", Packages: "apt install postgresql | dnf install postgresql-server | apk add postgresql", Version: []string{"--version"}, Dirs: "/usr/lib/postgresql/*/bin"}

var postgresKind = Kind{Name: "postgres", Scheme: "postgres", Program: PostgresProgram, Prepare: preparePostgres}

// postgresRole is the name of the database, and of the role that owns it.
const postgresRole = "tenon"

// ownsNothing is the kernel's overflow user and group, which own no files.
const ownsNothing = 65534

// accounts are the SQL statements that make the table for the load. The lab
// executes them at each start, so that all runs begin with the same table.
var accounts = []string{
	"DROP TABLE IF EXISTS accounts",
	"CREATE TABLE accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84))",
	fmt.Sprintf("INSERT INTO accounts SELECT n, 1, 0, '' FROM generate_series(1, %d) n", protocol.Accounts),
	"VACUUM ANALYZE accounts",
}

// preparePostgres makes the directory of a PostgreSQL server, with an empty
// database.
//
// The server lets every local user in, without a password, but only in a role
// that is no superuser. The superuser has no login. The server runs as a user
// that owns no other files.
func preparePostgres(ctx context.Context, in *testbed.Site, at place) (s Service, err error) {
	parent, err := in.Directory("")
	if err == nil {
		err = os.Chmod(parent, 0o755)
	}
	data := filepath.Join(parent, "postgres")
	if err == nil {
		err = os.Mkdir(data, 0o700)
	}
	if err == nil && os.Geteuid() == 0 { // the server refuses to run as root
		s.User = &syscall.Credential{Uid: ownsNothing, Gid: ownsNothing}
		err = os.Chown(data, ownsNothing, ownsNothing)
	}
	path := at.path
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err == nil {
		_, err = in.Await(ctx, testbed.Child{Name: "initdb", User: s.User, Argv: []string{
			filepath.Join(filepath.Dir(path), "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"}})
	}
	if err == nil {
		_, err = in.Await(ctx, testbed.Child{Name: "postgres --single", User: s.User,
			Argv:  []string{path, "--single", "-D", data, "-F", "-c", "exit_on_error=on", "-c", "log_min_messages=fatal", "postgres"},
			Stdin: strings.NewReader(fmt.Sprintf("CREATE ROLE %[1]s LOGIN\nCREATE DATABASE %[1]s OWNER %[1]s\nALTER ROLE postgres NOLOGIN\n", postgresRole))})
	}
	if err != nil {
		return s, fmt.Errorf("prepare PostgreSQL: %w", err)
	}
	// -F: no fsync. -k: no Unix socket. With mmap, a killed server leaves no files
	// in /dev/shm. autovacuum is off, because it would disturb only some runs.
	s.Argv = []string{path, "-D", data, "-h", at.host, "-p", strconv.Itoa(at.port), "-k", "", "-F", "-c", "max_connections=1000",
		"-c", "dynamic_shared_memory_type=mmap", "-c", "autovacuum=off", "-c", "log_min_messages=fatal"}
	s.URL = "postgres://" + postgresRole + "@" + at.address() + "/" + postgresRole
	s.fill = accounts
	s.end = syscall.SIGINT // fast shutdown; SIGTERM waits for clients
	return s, nil
}
