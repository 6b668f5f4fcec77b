package chart

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
)

const transcoderDir = "../../deploy/chart/transcoder"

// transcode renders the chart of the transcoding jobs by Helm 4 and by Helm 3.
// If the results differ, it fails.
func transcode(t *testing.T, values map[string]any) ([]document, error) {
	t.Helper()
	four, err := renderChart(t, transcoderDir, values)
	three, err3 := renderByHelm3(t, values)
	if (err == nil) != (err3 == nil) {
		t.Fatalf("Helm 4 says %v, Helm 3 says %v", err, err3)
	}
	if err == nil && text(four) != text(three) {
		t.Fatalf("Helm 4 and Helm 3 differ:\n%s\n%s", text(four), text(three))
	}
	return four, err
}

func renderByHelm3(t *testing.T, values map[string]any) ([]document, error) {
	t.Helper()
	c, err := loader.Load(transcoderDir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	return documentsOf(t, files), nil
}

func text(documents []document) string {
	var b bytes.Buffer
	for _, d := range documents {
		b.WriteString("---\n" + d.text)
	}
	return b.String()
}

// publishedArgs are the arguments of the published chart for a film and an
// output.
func publishedArgs(film string, job int) string {
	return fmt.Sprintf("-y -i /data/%s -stats -c:v libx264 -s 1920x1080 -crf 22 -profile:v main -pix_fmt yuv420p -threads 0 "+
		"-f mp4 -ac 2 -c:a aac -b:a 128k -strict -2 /data/output-%d.mp4", film, job)
}

// valuesOf returns the values of the chart for a published cell.
func valuesOf(kind string, parallelism int, cpu, memory string, more map[string]any) map[string]any {
	values := map[string]any{
		"type": kind, "parallelism": parallelism,
		"resources": map[string]any{"requests": map[string]any{"cpu": cpu, "memory": memory}},
	}
	maps.Copy(values, more)
	return values
}

// TestPublishedValuesGiveThePublishedJobs renders twelve sets of values of the
// published experiment. Names, arguments, requests and limits must equal those
// of the published chart. If an amount of memory has a fraction of a byte, it
// is rounded up.
func TestPublishedValuesGiveThePublishedJobs(t *testing.T) {
	trailer := "sintel_trailer-1080p.mp4"
	burst := func(rule any) map[string]any { return map[string]any{"burst": rule} }
	for _, c := range []struct {
		values              map[string]any
		jobs                int
		last                string // name of the last job
		film                string // of the last job
		cpu, memory         string // requests
		limit, limitsMemory string
	}{
		{nil, 8, "bm-8-4-8gi-7", trailer, "4", "8Gi", "4", "8Gi"},
		{valuesOf("bm", 12, "1", "2Gi", nil), 12, "bm-12-1-2gi-11", trailer, "1", "2Gi", "1", "2Gi"},
		{valuesOf("bm", 192, "0.1", "1Gi", nil), 192, "bm-192-0.1-1gi-191", trailer, "0.1", "1Gi", "0.1", "1Gi"},
		{valuesOf("bm", 8, "0.8", "8Gi", nil), 8, "bm-8-0.8-8gi-7", trailer, "0.8", "8Gi", "0.8", "8Gi"},
		{valuesOf("bm", 1, "0.8", "0.8Gi", nil), 1, "bm-1-0.8-0.8gi-0", trailer, "0.8", "858993460", "0.8", "858993460"},
		{valuesOf("aws", 24, "2", "2Gi", nil), 24, "aws-24-2-2gi-23", trailer, "2", "2Gi", "2", "2Gi"},
		{valuesOf("awslxd", 4, "7", "16Gi", nil), 4, "awslxd-4-7-16gi-3", trailer, "7", "16Gi", "7", "16Gi"},
		{valuesOf("lxd5", 6, "5", "4Gi", map[string]any{"multiSource": "published"}), 6, "lxd5-6-5-4gi-5", "source1.mp4", "5", "4Gi", "5", "4Gi"},
		{valuesOf("aws", 3, "1.5", "4Gi", burst("double")), 3, "aws-3-1.5-4gi-2", trailer, "1.5", "4Gi", "3", "4Gi"},
		{valuesOf("aws", 3, "0.8", "4Gi", burst(true)), 3, "aws-3-0.8-4gi-2", trailer, "0.8", "4Gi", "8", "4Gi"},
		{valuesOf("aws", 3, "5", "4Gi", burst("max")), 3, "aws-3-5-4gi-2", trailer, "5", "4Gi", "25", "4Gi"},
		{valuesOf("aws", 3, "5", "4Gi", burst("unlimited")), 3, "aws-3-5-4gi-2", trailer, "5", "4Gi", "", "4Gi"},
	} {
		documents, err := transcode(t, c.values)
		if err != nil {
			t.Errorf("%s: %v", c.last, err)
			continue
		}
		if len(documents) != c.jobs {
			t.Errorf("%s: %d jobs, want %d", c.last, len(documents), c.jobs)
		}
		seen := map[string]bool{}
		for _, d := range documents {
			name := d.str("metadata", "name")
			job, err := strconv.Atoi(name[strings.LastIndex(name, "-")+1:])
			box := containers(d)[0]
			if err != nil || seen[name] || d.str("kind") != "Job" || box.str("name") != fmt.Sprintf("transcoder-%d", job) || box.str("image") != "docker.io/jrottenberg/ffmpeg:ubuntu" {
				t.Errorf("%s: container %s of %s", name, box.str("name"), box.str("image"))
			}
			seen[name] = true
			for key, want := range map[string]string{"requests.cpu": c.cpu, "requests.memory": c.memory, "limits.cpu": c.limit, "limits.memory": c.limitsMemory} {
				amounts, of, _ := strings.Cut(key, ".")
				got := fmt.Sprint(box.value("resources", amounts, of))
				if want == "" {
					want = fmt.Sprint(nil)
				}
				if got != want {
					t.Errorf("%s: %s is %s, want %s", name, key, got, want)
				}
			}
			if d.str("metadata", "labels", "role") != "transcoder" || d.str("spec", "template", "metadata", "labels", "role") != "transcoder" {
				t.Errorf("%s lacks the label role", name)
			}
			if d.value("spec", "parallelism") != 1 || d.value("spec", "backoffLimit") != 0 || d.str("spec", "template", "spec", "restartPolicy") != "Never" {
				t.Errorf("%s: %v", name, d.value("spec"))
			}
			if name == c.last && args(box) != publishedArgs(c.film, job) {
				t.Errorf("%s: arguments\n%s\nwant\n%s", name, args(box), publishedArgs(c.film, job))
			}
		}
		if !seen[c.last] {
			t.Errorf("no job %s in %v", c.last, slices.Sorted(maps.Keys(seen)))
		}
	}
}

// TestResourcesThatCannotBeOvercommittedHaveALimit checks the rule of the API
// server: a request of huge pages or of an extended resource needs an equal
// limit. Resources of Kubernetes itself need none.
func TestResourcesThatCannotBeOvercommittedHaveALimit(t *testing.T) {
	for _, kind := range []string{"jobs", "indexed"} {
		values := valuesOf("bm", 2, "1", "2Gi", map[string]any{"kind": kind})
		requests := values["resources"].(map[string]any)["requests"].(map[string]any)
		maps.Copy(requests, map[string]any{
			"example.com/gpu": 1, "hugepages-2Mi": "64Mi", "ephemeral-storage": "1Gi", "kubernetes.io/batch-cpu": 500,
		})
		documents, err := transcode(t, values)
		if err != nil || len(documents) == 0 {
			t.Fatalf("%s: %d documents: %v", kind, len(documents), err)
		}
		for _, d := range documents {
			box := containers(d)[0]
			for name := range requests {
				if name != "cpu" && name != "memory" && fmt.Sprint(box.value("resources", "requests", name)) != fmt.Sprint(requests[name]) {
					t.Errorf("%s: the request of %s is %v, want %v", kind, name, box.value("resources", "requests", name), requests[name])
				}
			}
			limits, _ := box.value("resources", "limits").(map[string]any)
			if len(limits) != 4 || fmt.Sprint(limits["example.com/gpu"]) != "1" || limits["hugepages-2Mi"] != "64Mi" {
				t.Errorf("%s: limits %v, want cpu, memory, example.com/gpu 1 and hugepages-2Mi 64Mi", kind, limits)
			}
		}
	}
}

func args(box document) string {
	list, _ := box.value("args").([]any)
	var words []string
	for _, w := range list {
		words = append(words, fmt.Sprint(w))
	}
	return strings.Join(words, " ")
}

// TestThePublishedChoiceOfFilmsIsKept computes the published formula for 1 to
// 192 jobs. For example, four of 8 jobs must read film 1, and 107 of 192 jobs
// film 24.
func TestThePublishedChoiceOfFilmsIsKept(t *testing.T) {
	formula := func(parallelism, job int) int { return 1 + 23%(1+parallelism%(job+1)) }
	for _, n := range []int{1, 2, 8, 24, 25, 48, 96, 192} {
		documents, err := transcode(t, map[string]any{"parallelism": n, "multiSource": "published"})
		if err != nil {
			t.Fatal(err)
		}
		films := map[string]int{}
		for _, d := range documents {
			name := d.str("metadata", "name")
			job, err := strconv.Atoi(name[strings.LastIndex(name, "-")+1:])
			if err != nil {
				t.Fatal(err)
			}
			film := fmt.Sprintf("source%d.mp4", formula(n, job))
			if got := args(containers(d)[0]); got != publishedArgs(film, job) {
				t.Errorf("job %d of %d reads %s, want %s", job, n, got, film)
			}
			films[film]++
		}
		if n == 8 && (films["source1.mp4"] != 4 || films["source3.mp4"] != 2 || films["source2.mp4"] != 1 || films["source4.mp4"] != 1) || n == 192 && films["source24.mp4"] != 107 {
			t.Errorf("%d jobs read %v", n, films)
		}
	}
	documents, err := transcode(t, map[string]any{"parallelism": 26, "multiSource": true})
	if err != nil {
		t.Fatal(err)
	}
	films := map[string]int{}
	for _, d := range documents {
		films[strings.Fields(args(containers(d)[0]))[2]]++
	}
	if len(films) != 24 || films["/data/source2.mp4"] != 2 || films["/data/source24.mp4"] != 1 {
		t.Errorf("in turn, 26 jobs read %v", films)
	}
}

// TestAnIndexedJobHasANameThatPodsMayHave checks that the name has no dot,
// because the API server refuses a dot in the name of an Indexed Job. It also
// checks that each pod finds its number.
func TestAnIndexedJobHasANameThatPodsMayHave(t *testing.T) {
	for _, c := range []struct {
		values         map[string]any
		name, has, say string
	}{
		{valuesOf("bm", 8, "0.8", "8Gi", map[string]any{"kind": "indexed"}), "bm-8-800m-8gi", "-i /data/sintel_trailer-1080p.mp4", ""},
		{valuesOf("bm", 8, "2", "0.8Gi", map[string]any{"kind": "indexed", "multiSource": true}), "bm-8-2000m-858993460", "/data/output-$(JOB_COMPLETION_INDEX).mp4", "film=source$((1 + JOB_COMPLETION_INDEX % 24)).mp4"},
		{valuesOf("bm", 8, "2", "8Gi", map[string]any{"kind": "indexed", "multiSource": "published"}), "bm-8-2000m-8gi", "/data/output-$(JOB_COMPLETION_INDEX).mp4", "film=source$((1 + 23 % (1 + 8 % (JOB_COMPLETION_INDEX + 1)))).mp4"},
	} {
		documents, err := transcode(t, c.values)
		if err != nil || len(documents) != 1 {
			t.Fatalf("%s: %d documents: %v", c.name, len(documents), err)
		}
		d := documents[0]
		box := containers(d)[0]
		if d.str("metadata", "name") != c.name || d.str("spec", "completionMode") != "Indexed" || d.value("spec", "completions") != 8 || d.value("spec", "parallelism") != 8 || d.value("spec", "backoffLimitPerIndex") != 0 {
			t.Errorf("%s: %s", c.name, d.text)
		}
		if got := args(box) + " " + fmt.Sprint(box.value("command")); !strings.Contains(got, c.has) || !strings.Contains(got, c.say) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

// TestTheDefaultsOfTheTranscoderAreBaseline checks the rules of the Pod
// Security standard "baseline" that a pod of this chart could break.
func TestTheDefaultsOfTheTranscoderAreBaseline(t *testing.T) {
	for name, c := range map[string]struct {
		values   map[string]any
		baseline bool
	}{
		"the defaults":           {nil, true},
		"films in an image":      {map[string]any{"source": map[string]any{"url": "", "image": "films:1"}}, true},
		"films in the program's": {map[string]any{"source": map[string]any{"url": "", "path": "/films"}, "threads": "limit"}, true},
		"one indexed job":        {map[string]any{"kind": "indexed", "multiSource": true}, true},
		"a folder of the node":   {map[string]any{"source": map[string]any{"url": "", "hostPath": "/mnt"}}, false},
	} {
		documents, err := transcode(t, c.values)
		if err != nil {
			t.Fatal(err)
		}
		pod := document{object: documents[0].value("spec", "template", "spec").(map[string]any)}
		for _, key := range []string{"hostNetwork", "hostPID", "hostIPC"} {
			if pod.value(key) != nil {
				t.Errorf("%s: %s is set", name, key)
			}
		}
		baseline := true
		volumes, _ := pod.value("volumes").([]any)
		for _, v := range volumes {
			if (document{object: v.(map[string]any)}).value("hostPath") != nil {
				baseline = false
			}
		}
		if baseline != c.baseline {
			t.Errorf("%s: baseline %v, want %v", name, baseline, c.baseline)
		}
		boxes := containers(documents[0])
		inits, _ := pod.value("initContainers").([]any)
		for _, v := range inits {
			boxes = append(boxes, document{object: v.(map[string]any)})
		}
		for _, box := range boxes {
			if drop, _ := box.value("securityContext", "capabilities", "drop").([]any); box.value("securityContext", "privileged") != nil || !slices.Equal(drop, []any{"ALL"}) {
				t.Errorf("%s: %v", name, box.value("securityContext"))
			}
			if ports := box.value("ports"); ports != nil {
				t.Errorf("%s: ports %v", name, ports)
			}
		}
	}
}

func TestTheTranscoderNamesWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		values map[string]any
		says   []string
	}{
		"a type that shifts the columns": {map[string]any{"type": "aws-16cx1"}, []string{"aws-16cx1", "shift every column"}},
		"an unknown burst rule":          {map[string]any{"burst": "most"}, []string{"burst"}},
		"CPU in another unit":            {valuesOf("bm", 1, "4 cores", "8Gi", map[string]any{"burst": "double"}), []string{"resources.requests.cpu", "4 cores", "800m"}},
		"memory in another unit":         {valuesOf("bm", 1, "4", "8 GB", nil), []string{"resources.requests.memory", "8 GB"}},
		"two places of films":            {map[string]any{"source": map[string]any{"hostPath": "/mnt"}}, []string{"exactly one", "url, hostPath"}},
		"no place of films":              {map[string]any{"source": map[string]any{"url": ""}}, []string{"exactly one", "0 are set"}},
		"a key of old values":            {map[string]any{"resources": map[string]any{"limits": map[string]any{"cpu": "4"}}}, []string{"limits"}},
		"a resource without a domain":    {map[string]any{"resources": map[string]any{"requests": map[string]any{"gpu": 1}}}, []string{"gpu"}},
		"no jobs":                        {map[string]any{"parallelism": 0}, []string{"parallelism"}},
	} {
		_, err := transcode(t, c.values)
		if err == nil {
			t.Errorf("%s is accepted", name)
			continue
		}
		for _, word := range c.says {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the message lacks %q: %v", name, word, err)
			}
		}
	}
}

func TestTheTranscoderIsCleanForHelmLint(t *testing.T) {
	for _, m := range lint.RunAll(transcoderDir, nil, namespace).Messages {
		t.Errorf("%v", m)
	}
	names, err := os.ReadDir(path.Join(transcoderDir, "templates"))
	if err != nil || len(names) == 0 {
		t.Fatal(err)
	}
}
