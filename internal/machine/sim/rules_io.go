package sim

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// disk is the only block device of a simulated node. It does not support weights.
var disk = node.BlockDevice{Name: "vda", ID: unit.Device{Major: 254}, Disk: unit.Device{Major: 254}}

// throttleFiles are the limit files of cgroup v1, in the order of limitKeys.
var throttleFiles = []string{
	"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
	"blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device",
}

var limitKeys = []string{"rbps", "wbps", "riops", "wiops"}

// limitFiles are all files with limits of block I/O.
const limitFiles = "io.max blkio.throttle.read_bps_device blkio.throttle.write_bps_device blkio.throttle.read_iops_device blkio.throttle.write_iops_device"

// deviceFiles lists the files with one line per device. A write changes one line.
const deviceFiles = limitFiles + " io.latency"

func ioRules() []rule {
	return []rule{
		{
			name: "an I/O limit on a device that does not exist is refused", operation: "write", files: deviceFiles,
			refuse: func(o op) syscall.Errno {
				d, _, _ := o.device()
				return refuseIf(d != disk.ID, syscall.ENODEV)
			},
		},
		{
			name: "an I/O limit that is not a number is refused", operation: "write", files: limitFiles,
			refuse: func(o op) syscall.Errno {
				_, body, _ := o.device()
				for _, word := range strings.Fields(body) {
					value := word[strings.Index(word, "=")+1:]
					_, err := strconv.ParseUint(value, 10, 64)
					if err != nil && (value != "max" || o.n.version == 1) {
						return syscall.EINVAL
					}
				}
				return 0
			},
		},
		{
			name: "an I/O limit of 0 is refused", version: 2, operation: "write", files: "io.max",
			refuse: func(o op) syscall.Errno {
				_, body, _ := o.device()
				zero := slices.ContainsFunc(strings.Fields(body), func(w string) bool { return strings.HasSuffix(w, "=0") })
				return refuseIf(zero, syscall.ERANGE)
			},
		},
		{
			name: "an I/O limit that is not written stays", version: 2, files: "io.max",
			settle: func(o op) string {
				d, body, _ := o.device()
				rates := ratesOf(o.lines()[d])
				for k, v := range rates {
					if !strings.Contains(body, k+"=") {
						body += " " + k + "=" + v
					}
				}
				return d.String() + " " + body
			},
		},
		{
			name: "a limit of more operations than fit into 32 bits means no limit", version: 2, files: "io.max",
			settle: func(o op) string {
				d, body, _ := o.device()
				words := strings.Fields(body)
				for i, w := range words {
					key, value, _ := strings.Cut(w, "=")
					if n, err := strconv.ParseUint(value, 10, 64); err == nil && strings.HasSuffix(key, "iops") && n >= math.MaxUint32 {
						words[i] = key + "=max"
					}
				}
				return d.String() + " " + strings.Join(words, " ")
			},
		},
		{
			name: "a device without I/O limits has no line", files: limitFiles,
			settle: func(o op) string {
				d, body, _ := o.device()
				rates := ratesOf(body)
				maps.DeleteFunc(rates, func(_, v string) bool { return v == "max" })
				if body == "0" || o.file == "io.max" && len(rates) == 0 {
					return d.String()
				}
				return o.text
			},
		},
		{
			name: "a weight of I/O outside 1 to 10000 is refused", version: 2, operation: "write", files: "io.weight",
			refuse: func(o op) syscall.Errno {
				n, err := strconv.ParseInt(strings.TrimPrefix(o.text, "default "), 10, 64)
				return refuseIf(err == nil && (n < 1 || n > 10000), syscall.EINVAL)
			},
		},
		{
			name: "a weight of bfq outside 1 to 1000 is refused", version: 1, operation: "write", files: "blkio.bfq.weight",
			refuse: func(o op) syscall.Errno {
				n, err := strconv.ParseInt(o.text, 10, 64)
				return refuseIf(err == nil && (n < 1 || n > 1000), syscall.ERANGE)
			},
		},
		{
			name: "a weight for a device without weights is refused", operation: "write", files: "io.weight blkio.bfq.weight_device",
			refuse: func(o op) syscall.Errno {
				_, _, named := o.device()
				return refuseIf(named, syscall.EOPNOTSUPP)
			},
		},
		{
			name: "a weight of I/O is that of all devices", files: "io.weight blkio.bfq.weight",
			settle: func(o op) string {
				n := strings.TrimPrefix(o.text, "default ")
				if o.file == "io.weight" {
					return "default " + n
				}
				o.g.files["blkio.bfq.weight_device"] = "default " + n
				return n
			},
		},
		{
			name: "a target of 0 means no target", version: 2, files: "io.latency",
			settle: func(o op) string {
				if d, body, _ := o.device(); body == "target=0" {
					return d.String()
				}
				return o.text
			},
		},
	}
}

// device splits the text of a write into a device and the rest of the line.
func (o op) device() (d unit.Device, body string, named bool) {
	first, body, _ := strings.Cut(o.text, " ")
	d, err := unit.ParseDevice(first)
	return d, strings.TrimSpace(body), err == nil
}

// lines returns the present lines of the file to write, by device.
func (o op) lines() map[unit.Device]string { return linesIn(o.g.files[o.file]) }

func linesIn(text string) map[unit.Device]string {
	m := map[unit.Device]string{}
	for line := range strings.Lines(text) {
		first, body, _ := strings.Cut(strings.TrimSpace(line), " ")
		if d, err := unit.ParseDevice(first); err == nil {
			m[d] = body
		}
	}
	return m
}

// replaceDevice returns the content of the file after a write that replaces the line of one
// device. If the write contains only the device, its line is removed.
func (o op) replaceDevice() string {
	d, body, named := o.device()
	if !named {
		return o.text
	}
	m := o.lines()
	if m[d] = body; o.file == "io.max" {
		rates := ratesOf(body)
		m[d] = ""
		for _, k := range limitKeys {
			if body != "" {
				m[d] += " " + k + "=" + rates[k]
			}
		}
	}
	if body == "" {
		delete(m, d)
	}
	var lines []string
	for _, d := range slices.SortedFunc(maps.Keys(m), unit.Device.Compare) {
		lines = append(lines, d.String()+" "+strings.TrimSpace(m[d]))
	}
	return strings.Join(lines, "\n")
}

// ratesOf parses a text such as "rbps=1 wbps=max". A missing rate is "max".
func ratesOf(body string) map[string]string {
	rates := map[string]string{}
	for _, k := range limitKeys {
		rates[k] = "max"
	}
	for _, w := range strings.Fields(body) {
		if key, value, is := strings.Cut(w, "="); is {
			rates[key] = value
		}
	}
	return rates
}
