package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"tenon.sh/tenon/test/cluster/image"
)

// configure writes the configuration files and the credentials of the node's
// programs.
func (n *Node) configure(o NodeOptions) error {
	for _, dir := range []string{"kubelet", "containerd", "run", "varlog", "cni", "plugins", "manifests", "certs.d/_default"} {
		if err := os.MkdirAll(filepath.Join(n.Dir, dir), 0o755); err != nil {
			return err
		}
	}
	c := n.cluster
	if _, err := c.User("system:node:"+n.Name, "system:nodes"); err != nil {
		return err
	}
	if err := c.pki().Server("kubelet-"+n.Name, n.Name, n.IP); err != nil {
		return err
	}
	extra, err := json.Marshal(o.KubeletArgs)
	if err != nil {
		return err
	}
	snapshotter, network := "overlayfs", networkConfig
	if o.Bare {
		snapshotter, network = "native", loopbackConfig
	}
	driver := "cgroupfs"
	if c.Systemd {
		driver = "systemd"
	}
	fill := strings.NewReplacer("SNAPSHOTTER", snapshotter, "DIR", n.Dir, "BIN", c.Bin, "PKI", c.file("pki"), "NODE", n.Name, "ADDRESS", n.IP,
		"LOOPBACK", fmt.Sprintf("10.88.%d.2/32", n.index), "SUBNET", fmt.Sprintf("10.88.%d.0/24", n.index), "BRIDGE", n.bridge(),
		"CGROUP", n.CgroupRoot, "DRIVER", driver, "SYSTEMD", fmt.Sprint(c.Systemd), "PAUSE", image.Pause, "NONRI", fmt.Sprint(o.NoNRI), "REGISTRY", cmp.Or(o.Registry, registryAddress))
	for file, text := range map[string]string{
		"containerd.toml":             fill.Replace(containerdConfig),
		"certs.d/_default/hosts.toml": fill.Replace(mirrorConfig),
		"cni/10-pods.conflist":        fill.Replace(network),
		"kubelet.yaml":                fill.Replace(kubeletConfig) + o.Kubelet + "\n",
		"kubelet-args.json":           string(extra),
	} {
		if err := os.WriteFile(filepath.Join(n.Dir, file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if !o.Bare {
		return nil
	}
	return os.WriteFile(filepath.Join(n.Dir, "plugins", "only-loopback"), []byte(fill.Replace(loopbackPlugin)), 0o755)
}

func (n *Node) dialThrough(client *http.Client) {
	client.Transport.(*http.Transport).DialContext = n.cluster.Dial
}

// mirrorConfig makes containerd pull the images of every registry from the
// cluster's own registry.
const mirrorConfig = `server = "http://REGISTRY"
[host."http://REGISTRY"]
  capabilities = ["pull", "resolve"]
`

const networkConfig = `{"cniVersion": "1.0.0", "name": "tenon", "plugins": [{
  "type": "bridge", "bridge": "BRIDGE", "isGateway": true,
  "ipam": {"type": "host-local", "dataDir": "DIR/ipam", "ranges": [[{"subnet": "SUBNET"}]], "routes": [{"dst": "0.0.0.0/0"}]}
}]}
`

// loopbackConfig is the network configuration for a kernel without bridges.
const loopbackConfig = `{"cniVersion": "1.0.0", "name": "tenon", "plugins": [{"type": "only-loopback"}]}`

// loopbackPlugin is a CNI plugin. It only reports an address, because containerd
// refuses a pod without one. No interface has the address, because containerd
// also runs the plugin loopback, which refuses all addresses but its own.
const loopbackPlugin = `#!/bin/sh
case $CNI_COMMAND in
ADD) echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "'"$CNI_NETNS"'"}], "ips": [{"interface": 0, "address": "LOOPBACK"}]}' ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
esac
`

// containerdConfig sets restrict_oom_score_adj, because a containerd without
// CAP_SYS_RESOURCE could start no pod otherwise.
const containerdConfig = `version = 3
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'SNAPSHOTTER'
[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]
  platform = 'linux'
  snapshotter = 'SNAPSHOTTER'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'PAUSE'
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = 'DIR/certs.d'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = 'BIN/runc'
  SystemdCgroup = SYSTEMD
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['BIN/cni', 'DIR/plugins']
  conf_dir = 'DIR/cni'
[plugins.'io.containerd.nri.v1.nri']
  disable = NONRI
  plugin_path = 'DIR/nri'
  plugin_config_path = 'DIR/nri-conf'
[plugins.'io.containerd.internal.v1.opt']
  path = 'DIR/opt'
`

// kubeletConfig enables authentication and authorization as in a real cluster:
// the kubelet refuses requests without credentials.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: DRIVER
cgroupRoot: CGROUP
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: PKI/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: PKI/kubelet-NODE.crt
tlsPrivateKeyFile: PKI/kubelet-NODE.key
address: ADDRESS
healthzBindAddress: ADDRESS
staticPodPath: DIR/manifests
volumePluginDir: DIR/volume-plugins
failSwapOn: false
resolvConf: ""
makeIPTablesUtilChains: false
enforceNodeAllocatable: [pods]
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
nodeStatusUpdateFrequency: 5s
`
