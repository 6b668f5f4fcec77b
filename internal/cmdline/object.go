package cmdline

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
)

// DefaultConfigMap is the ConfigMap with Tenon's settings, if no flag names one.
const DefaultConfigMap = "tenon-system/slo-controller-config"

// ObjectName is the value of a flag that names an object of a cluster.
type ObjectName struct{ Namespace, Name string }

// Set implements pflag.Value.
func (n *ObjectName) Set(s string) error {
	namespace, name, both := strings.Cut(s, "/")
	if !both || namespace == "" || name == "" || strings.Contains(name, "/") {
		return errors.New("want NAMESPACE/NAME")
	}
	*n = ObjectName{namespace, name}
	return nil
}

func (n *ObjectName) String() string {
	if *n == (ObjectName{}) {
		return ""
	}
	return n.Namespace + "/" + n.Name
}

// Type implements pflag.Value: it names the value in the help text.
func (n *ObjectName) Type() string { return "NAMESPACE/NAME" }

// AddConfigMap adds the flag --config-map to a command.
func (n *ObjectName) AddConfigMap(cmd *cobra.Command) {
	_ = n.Set(DefaultConfigMap) // cannot fail: a test sets it
	cmd.Flags().Var(n, "config-map", "the ConfigMap with the settings; Koordinator's is in koordinator-system, ACK's is kube-system/ack-slo-config")
}
