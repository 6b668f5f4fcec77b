package protocol

import (
	"net/url"
	"strings"
	"testing"
)

// Messages of a server.
var (
	authenticated = message("R", "\x00\x00\x00\x00")
	ready         = message("Z", "I")
	row           = string(message("T", "\x00\x01abalance\x00"+strings.Repeat("\x00", 18))) + string(message("D", "\x00\x01\x00\x00\x00\x010")) + string(message("C", "SELECT 1\x00"))
)

func errorResponse(severity, code, text string) string {
	return string(message("E", "S", "FEHLER\x00", "V", severity, "\x00C", code, "\x00M", text, "\x00Fparse.c\x00\x00"))
}

func TestAnswersOfPostgreSQLAreCompleteExactlyAtTheirEnd(t *testing.T) {
	for name, c := range map[string]struct{ stream, fault string }{
		"start": {string(authenticated) + string(message("S", "TimeZone\x00UTC\x00")) + string(message("K", "\x00\x00\x00\x01abcd")) + string(ready), ""},
		"row":   {row + string(ready), ""},
		"two":   {row + row + string(ready), ""},
		"empty": {string(message("I")) + string(ready), ""},
		"error": {errorResponse("ERROR", "42P01", "relation \"accounts\" does not exist") + string(ready), "ERROR 42P01: relation \"accounts\" does not exist"},
		"large": {string(message("D", strings.Repeat("Z\x00\x00\x00\x05I", 3000))) + string(message("N", strings.Repeat("x", 2*maxKept))) + string(ready), ""},
		"long error": {string(message("E", "V", "ERROR\x00", "M", strings.Repeat("x", 2*maxKept), "\x00\x00")) + string(ready),
			"ERROR : " + strings.Repeat("x", maxKept-len("VERROR\x00M"))},
	} {
		t.Run(name, func(t *testing.T) {
			a := &Postgres{}
			for _, piece := range []int{1, 2, 3, 4, 5, 6, 7, 100, 5000, len(c.stream)} {
				a.Reset()
				exact, err := feedInPieces(a, c.stream, piece)
				if err != nil || !exact || a.Outcome().Failed != (c.fault != "") || c.fault != "" && a.Fault() != c.fault {
					t.Fatalf("pieces of %d: exact %v, fault %q, error %v", piece, exact, a.Fault(), err)
				}
			}
			if cap(a.kept) > 2*maxKept || cap(a.fault) > 2*maxKept {
				t.Errorf("the parser keeps %d and %d bytes", cap(a.kept), cap(a.fault))
			}
			if _, err := a.Feed([]byte{'Z'}); err == nil {
				t.Error("bytes after the end are accepted")
			}
		})
	}
}

func TestPostgreSQLRefusals(t *testing.T) {
	for name, c := range map[string]struct{ stream, want string }{
		"cleartext":       {string(message("R", "\x00\x00\x00\x03")), "asks for a cleartext password"},
		"MD5":             {string(message("R", "\x00\x00\x00\x05salt")), "asks for an MD5 password"},
		"SCRAM":           {string(message("R", "\x00\x00\x00\x0aSCRAM-SHA-256\x00\x00")), "asks for SCRAM, and this client has no password"},
		"Kerberos":        {string(message("R", "\x00\x00\x00\x07")), "authentication method 7"},
		"too many":        {errorResponse("FATAL", "53300", "sorry, too many clients already"), `it answers "FATAL 53300: sorry, too many clients already"`},
		"half a request":  {string(message("R", "\x00")), "wrong length"},
		"HTTP":            {"HTTP/1.1 400 Bad Request\r\n", "begins with 'H'"},
		"COPY":            {string(message("G", "\x00\x00\x00")), "begins with 'G'"},
		"too short":       {"D\x00\x00\x00\x03", "wrong length: 3 bytes"},
		"too long":        {"D\x40\x00\x00\x00", "wrong length: 1073741824 bytes"},
		"negative":        {"E\xff\xff\xff\xff", "wrong length: 4294967295 bytes"},
		"ready for what?": {string(message("Z")), "wrong length"},
	} {
		if _, err := (&Postgres{}).Feed([]byte(c.stream)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

func TestRequestsToPostgreSQL(t *testing.T) {
	target, err := Parse(t.Context(), "postgres://ada@127.0.0.1/engine", 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := "\x00\x00\x00\x3d\x00\x03\x00\x00user\x00ada\x00database\x00engine\x00application_name\x00tenon lab\x00\x00"; string(target.Hello) != want {
		t.Errorf("first message %q, want %q", target.Hello, want)
	}
	if last := string(target.Load[len(target.Load)-1]); len(target.Load) != Accounts || target.Addrs[0].Port != 5432 || last != "Q\x00\x00\x004SELECT abalance FROM accounts WHERE aid = 10000\x00" {
		t.Errorf("%d requests to port %d, the last is %q", len(target.Load), target.Addrs[0].Port, last)
	}
	target, err = Parse(t.Context(), "postgres://ada@127.0.0.1:7/engine?query="+url.QueryEscape("SELECT 1 + 1; SELECT 2"), 0)
	if err != nil || len(target.Load) != 1 || !strings.Contains(string(target.Load[0]), "SELECT 1 + 1; SELECT 2\x00") {
		t.Errorf("requests %q, error %v", target.Load, err)
	}
	if _, err := Parse(t.Context(), "postgres://ada@127.0.0.1/engine", 3); err == nil {
		t.Error("pages of a database are accepted")
	}
	for _, bad := range []string{"postgres://h/db", "postgres://u@h", "postgres://u@h/", "postgres://u:secret@h/db", "postgres://u@h/db?sslmode=require", "postgres://u@h/db?query=", "postgres://u@h/d%00b", "postgres://u@h/db?query=1%00", "postgres://u@h/db?query=1;2", "postgres://u@/db"} {
		if err := Check(bad); err == nil || !strings.Contains(err.Error(), "postgres://USER@HOST[:PORT]/DATABASE[?query=SQL]") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}

// FuzzPostgres checks that the result does not depend on how an answer is
// divided into pieces, and that the parser keeps little of it.
func FuzzPostgres(f *testing.F) {
	f.Add([]byte(row+string(ready)), 3)
	f.Add(append([]byte(errorResponse("ERROR", "42601", "syntax error")), ready...), 5)
	f.Add(append(authenticated, ready...), 7)
	f.Add([]byte("D\x40\x00\x00\x00"), 1)
	f.Fuzz(func(t *testing.T, stream []byte, piece int) {
		if piece < 1 || len(stream) == 0 {
			return
		}
		whole, cut := &Postgres{}, &Postgres{}
		done, err := whole.Feed(stream)
		exact, errPieces := feedInPieces(cut, string(stream), piece)
		if (err == nil && done) != (errPieces == nil && exact) || exact && (whole.Fault() != cut.Fault()) {
			t.Errorf("%q: whole %v, %v; pieces of %d %v, %v", stream, done, err, piece, exact, errPieces)
		}
		if len(whole.kept) > maxKept || len(whole.fault) > maxKept {
			t.Errorf("%d and %d bytes are kept", len(whole.kept), len(whole.fault))
		}
	})
}
