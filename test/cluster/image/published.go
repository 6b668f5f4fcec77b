package image

import (
	"fmt"
	"os/exec"
)

// published maps the name of a program (test/cluster/seeds) to the image for
// which it stands in. Published manifests about CPUs use these images.
var published = map[string]string{
	"java-pi": "registry.cn-zhangjiakou.aliyuncs.com/xianlu/java-pi:latest",
	"go-demo": "registry.cn-hangzhou.aliyuncs.com/haoshuwei24/go-demo:1k",
}

// AddPublished adds images of our own under the names of the published ones.
// program is the path of the compiled test/cluster/seeds.
func (l Layout) AddPublished(program string) error {
	for name, full := range published {
		var root Root
		if err := root.File("/"+name, program); err != nil {
			return err
		}
		if err := l.Add(full, &root, "/"+name); err != nil {
			return err
		}
	}
	return nil
}

// AddPublishedNGINX adds the image of the published manifests of nginx. As in
// the published image, the server is in conf.d, and the logs are the
// container's output.
func (l Layout) AddPublishedNGINX() error {
	var root Root
	for name, to := range map[string]string{"nginx": "/usr/sbin/nginx", "busybox": "/bin/busybox"} {
		program, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		if err := root.Program(to, program); err != nil {
			return err
		}
	}
	for _, name := range []string{"sh", "cat", "grep"} {
		root.Link("/bin/"+name, "busybox")
	}
	if err := root.File("/etc/nginx/mime.types", "/etc/nginx/mime.types"); err != nil {
		return err
	}
	root.Text("/etc/nginx/conf.d/default.conf", 0o644, "server { listen 80; root /usr/share/nginx/html; }\n")
	root.Text("/usr/share/nginx/html/index.html", 0o644, fmt.Sprintf("%-612s", "<!doctype html><title>nginx</title>"))
	root.Text("/etc/passwd", 0o644, "root:x:0:0::/:/bin/false\nnginx:x:101:101::/:/bin/false\n")
	root.Text("/etc/group", 0o644, "root:x:0:\nnginx:x:101:\n")
	root.Dir("/var/lib/nginx", 0o755)
	root.Dir("/var/run", 0o755)
	root.Link("/var/log/nginx/access.log", "/dev/stdout")
	root.Link("/var/log/nginx/error.log", "/dev/stderr")
	return l.Add("docker.io/library/nginx:latest", &root, "/usr/sbin/nginx", "-g", "daemon off;")
}
