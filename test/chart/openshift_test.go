package chart

import (
	"maps"
	"slices"
	"testing"
)

// TestOpenShiftAllowsWhatThePodsAskFor compares the SecurityContextConstraints with the
// pods of tenond, field by field. They must allow all that the pods ask for, and no
// capability and no kind of volume besides.
func TestOpenShiftAllowsWhatThePodsAskFor(t *testing.T) {
	for key := range mustRender(t, nil) {
		if key == "SecurityContextConstraints tenond" || key == "RoleBinding tenon-nonroot" {
			t.Errorf("%s is rendered by default", key)
		}
	}
	for name, values := range map[string]map[string]any{
		"default": {}, "everything": allOptions(), "nothing": noOptions(),
		"two capabilities": {"agent": map[string]any{"capabilities": []any{"SYS_NICE"}, "sysAdmin": false}, "watchdog": map[string]any{"capabilities": []any{"IPC_LOCK", "SYS_NICE"}}},
	} {
		values["openshift"] = map[string]any{"enabled": true}
		all := mustRender(t, values)
		scc, agent := all["SecurityContextConstraints tenond"], all["DaemonSet tenond"]
		spec := func(keys ...string) any { return agent.value(append([]string{"spec", "template", "spec"}, keys...)...) }
		capabilities := map[any]bool{}
		for _, c := range append(containers(agent), initContainers(agent)...) {
			add, _ := c.value("securityContext", "capabilities", "add").([]any)
			for _, name := range add {
				capabilities[name] = true
			}
			drop, _ := c.value("securityContext", "capabilities", "drop").([]any)
			if !slices.Equal(drop, scc.value("requiredDropCapabilities").([]any)) {
				t.Errorf("%s: a container drops %v", name, drop)
			}
			for _, same := range []string{"allowPrivilegeEscalation", "readOnlyRootFilesystem"} {
				if c.value("securityContext", same) != scc.value(same) {
					t.Errorf("%s: %s of a container is %v", name, same, c.value("securityContext", same))
				}
			}
		}
		sets(t, name+": capabilities", scc.value("allowedCapabilities"), capabilities)
		kinds := map[any]bool{"projected": true} // the token of the ServiceAccount
		volumes, _ := spec("volumes").([]any)
		for _, v := range volumes {
			for kind := range v.(map[string]any) {
				if kind != "name" {
					kinds[kind] = true
				}
			}
		}
		sets(t, name+": kinds of volumes", scc.value("volumes"), kinds)
		for field, value := range map[string]any{"hostPID": scc.value("allowHostPID"), "hostNetwork": scc.value("allowHostNetwork"), "hostIPC": scc.value("allowHostIPC")} {
			if asked := spec(field) == true; asked != (value == true) {
				t.Errorf("%s: %s of the pods is %t, and allowed is %v", name, field, asked, value)
			}
		}
		if scc.value("allowPrivilegedContainer") != false || scc.value("allowHostDirVolumePlugin") != true || asJSON(t, scc.value("seccompProfiles")) != `["runtime/default"]` || spec("securityContext", "seccompProfile", "type") != "RuntimeDefault" {
			t.Errorf("%s:\n%s", name, scc.text)
		}
		if users := asJSON(t, scc.value("users")); users != `["system:serviceaccount:tenon-system:tenond"]` {
			t.Errorf("%s: the users are %s", name, users)
		}
		bound := map[any]bool{}
		for _, key := range []string{"RoleBinding tenon-nonroot", "RoleBinding tenon-uninstall-nonroot"} {
			subjects, _ := all[key].value("subjects").([]any)
			for _, s := range subjects {
				bound[s.(map[string]any)["name"]] = true
			}
		}
		for key, d := range all {
			account := d.value(append(podSpec(d), "serviceAccountName")...)
			if account != nil && key != "DaemonSet tenond" && !bound[account] {
				t.Errorf("%s: OpenShift does not admit the pods of %s", name, key)
			}
		}
	}
}

// sets compares a list with a set.
func sets(t *testing.T, what string, list any, want map[any]bool) {
	t.Helper()
	got := map[any]bool{}
	items, _ := list.([]any)
	for _, item := range items {
		got[item] = true
	}
	if !maps.Equal(got, want) || len(items) != len(want) {
		t.Errorf("%s: %v, want %v", what, items, want)
	}
}

// TestSysAdminIsASwitch checks that tenond has SYS_ADMIN once or not at all. A list of
// capabilities that has it from an older chart changes nothing.
func TestSysAdminIsASwitch(t *testing.T) {
	for name, c := range map[string]struct {
		agent map[string]any
		want  int
	}{
		"default":      {nil, 1},
		"off":          {map[string]any{"sysAdmin": false}, 0},
		"listed, too":  {map[string]any{"capabilities": []any{"BPF", "SYS_ADMIN"}}, 1},
		"only by list": {map[string]any{"capabilities": []any{"BPF", "SYS_ADMIN"}, "sysAdmin": false}, 1},
	} {
		values := map[string]any{}
		if c.agent != nil {
			values["agent"] = c.agent
		}
		got := 0
		agent := mustRender(t, values)["DaemonSet tenond"]
		for _, container := range append(containers(agent), initContainers(agent)...) {
			add, _ := container.value("securityContext", "capabilities", "add").([]any)
			for _, capability := range add {
				if capability == "SYS_ADMIN" {
					got++
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: SYS_ADMIN is in %d lists, want %d", name, got, c.want)
		}
	}
}
