package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestBadFlagsSayWhatIsWanted(t *testing.T) {
	for line, want := range map[string]string{
		"--log-format xml":          `invalid argument "xml" for "--log-format" flag: want text or json`,
		"--translate-scheduler a=":  "--translate-scheduler a=: want the names of two schedulers",
		"--translate-scheduler a":   "a must be formatted as key=value",
		"--webhook-port 70000":      "--webhook-port 70000: want 0 to 65535",
		"--certificate-settle 100d": "invalid argument",
		"--certificate-lifetime 1h": "want a certificate lifetime",
		"--ca-lifetime 1h":          "a CA lifetime of at least twice",
		"--prometheus-url ftp://a":  `--prometheus-url "ftp://a": want http:// or https://`,
		"--prometheus-ca-file /ca":  "flags that begin with --prometheus- have no effect without --prometheus-url",
		"now":                       `takes no argument, got "now"`,
		"unistall":                  `tenon-manager takes no argument, got "unistall": did you mean uninstall?`,
		"--prometheus-uri http://a": "unknown flag: --prometheus-uri: did you mean --prometheus-url?",
		"--leader-elect=maybe":      "want true or false",
		"uninstall --log-level x":   "want debug, info, warn or error",
		"uninstall --dry-run":       "unknown flag: --dry-run: tenon-manager has it",
		"--kubeconfig /none/such":   "read --kubeconfig /none/such",
	} {
		if line == "--certificate-lifetime 1h" {
			line += " --certificate-settle 15m"
		}
		root := newRootCommand()
		root.SetArgs(strings.Fields(line))
		root.SetErr(io.Discard)
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", line, err, want)
		}
	}
}

func TestFlagsBecomeOptions(t *testing.T) {
	c := &command{}
	root := newRootCommand()
	if f := root.Flags().Lookup("certificate-lifetime"); f == nil || f.DefValue != (90*24*time.Hour).String() {
		t.Errorf("a certificate lives %v", f)
	}
	if err := root.ParseFlags([]string{"--translate-scheduler", "koord-scheduler=default-scheduler"}); err != nil {
		t.Error(err)
	}
	c.schedulers, _ = root.Flags().GetStringToString("translate-scheduler")
	c.dryRun, c.webhookPort = true, 9443
	if err := errors.Join(c.log.Format.Set("json"), c.configMap.Set("kube-system/ack-slo-config")); err != nil {
		t.Error(err)
	}
	c.lifetimes.Settle, c.lifetimes.Serving, c.lifetimes.CA = time.Minute, time.Hour, 3*time.Hour
	o, err := c.options(io.Discard)
	if err != nil || o.Config.String() != "kube-system/ack-slo-config" || o.Port != 0 || !o.DryRun || o.SchedulerNames["koord-scheduler"] != "default-scheduler" {
		t.Errorf("%+v, %v", o, err)
	}
}
