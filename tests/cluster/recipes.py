"""Which programs does the test cluster consist of, at which versions, and how is each built?"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

KUBERNETES = "1.34.2"
STAGING = "0.34.2"  # the version of the modules that live inside Kubernetes' own tree
GO_OLDEST = (1, 26)  # what the newest of them, kwok, asks for
GO_FROM_PYPI = "1.26.6"

ETCD_MAIN = """package main

import (
\t"os"

\t"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
"""

COREDNS_MAIN = """package main

import (
\t_ "github.com/coredns/coredns/plugin/bind"
\t_ "github.com/coredns/coredns/plugin/errors"
\t_ "github.com/coredns/coredns/plugin/kubernetes"
\t_ "github.com/coredns/coredns/plugin/ready"

\t"github.com/coredns/coredns/core/dnsserver"
\t"github.com/coredns/coredns/coremain"
)

func main() {
\tdnsserver.Directives = []string{"bind", "ready", "errors", "kubernetes"}
\tcoremain.Run()
}
"""

# Kubernetes' own sample plugin is fixed to two of example.com/resource; this one has a name, a number and ids.
GPU_PLUGIN_MAIN = """package main

import (
\t"context"
\t"fmt"
\t"net"
\t"os"
\t"path/filepath"
\t"strconv"
\t"strings"

\t"google.golang.org/grpc"
\t"google.golang.org/grpc/credentials/insecure"
\tapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
\tapi.UnimplementedDevicePluginServer
\tdevices []*api.Device
}

// gpu-plugin RESOURCE COUNT PREFIX: devices PREFIX-0 ... are offered to the kubelet of this mount namespace.
func main() {
\tresource, prefix := os.Args[1], os.Args[3]
\tcount, err := strconv.Atoi(os.Args[2])
\tcheck(err)
\toffered := &plugin{}
\tfor index := 0; index < count; index++ {
\t\toffered.devices = append(offered.devices, &api.Device{ID: fmt.Sprintf("%s-%d", prefix, index), Health: api.Healthy})
\t}
\tsocket := filepath.Join(api.DevicePluginPath, strings.ReplaceAll(resource, "/", "-")+".sock")
\tos.Remove(socket)
\tlistener, err := net.Listen("unix", socket)
\tcheck(err)
\tserver := grpc.NewServer()
\tapi.RegisterDevicePluginServer(server, offered)
\tgo func() { check(server.Serve(listener)) }()
\tkubelet, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
\tcheck(err)
\trequest := &api.RegisterRequest{Version: api.Version, Endpoint: filepath.Base(socket), ResourceName: resource}
\t_, err = api.NewRegistrationClient(kubelet).Register(context.Background(), request, grpc.WaitForReady(true))
\tcheck(err)
\tfmt.Println("registered")
\tselect {}
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
\treturn &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
\tif err := stream.Send(&api.ListAndWatchResponse{Devices: p.devices}); err != nil {
\t\treturn err
\t}
\t<-stream.Context().Done()
\treturn nil
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
\tresponse := &api.AllocateResponse{}
\tfor _, container := range request.ContainerRequests {
\t\tids := strings.Join(container.DevicesIds, ",")
\t\tresponse.ContainerResponses = append(response.ContainerResponses,
\t\t\t&api.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": ids}})
\t}
\treturn response, nil
}

func check(err error) {
\tif err != nil {
\t\tfmt.Fprintln(os.Stderr, err)
\t\tos.Exit(1)
\t}
}
"""

# Kubernetes' own arithmetic, asked by lines of JSON: a text is a quantity, a mapping is the specification of a pod.
QUANTITY_MAIN = """package main

import (
\t"bufio"
\t"encoding/json"
\t"math/big"
\t"os"

\t"gopkg.in/inf.v0"
\tv1 "k8s.io/api/core/v1"
\t"k8s.io/apimachinery/pkg/api/resource"
\thelpers "k8s.io/component-helpers/resource"
)

type answer struct {
\tError  string           `json:"error,omitempty"`
\tNanos  *big.Int         `json:"nanos,omitempty"`
\tMilli  int64            `json:"milli"`
\tValue  int64            `json:"value"`
\tTotals map[string]int64 `json:"totals,omitempty"`
}

func main() {
\tlines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
\tlines.Buffer(nil, 1<<20)
\tfor lines.Scan() {
\t\tfound, err := ask(lines.Bytes())
\t\tif err != nil {
\t\t\tfound = answer{Error: err.Error()}
\t\t}
\t\tout.Encode(found)
\t}
}

func ask(line []byte) (answer, error) {
\tvar text string
\tif json.Unmarshal(line, &text) != nil {
\t\treturn askPod(line)
\t}
\tfound, err := resource.ParseQuantity(text)
\tif err != nil {
\t\treturn answer{}, err
\t}
\tnanos := new(inf.Dec).Round(found.AsDec(), 9, inf.RoundUp).UnscaledBig()
\treturn answer{Nanos: nanos, Milli: found.MilliValue(), Value: found.Value()}, nil
}

// As the API server has it before the scheduler counts: a request that is missing is as the limit.
func askPod(line []byte) (answer, error) {
\tvar spec v1.PodSpec
\tif err := json.Unmarshal(line, &spec); err != nil {
\t\treturn answer{}, err
\t}
\tfor _, containers := range [][]v1.Container{spec.Containers, spec.InitContainers} {
\t\tfor index := range containers {
\t\t\tasked := &containers[index].Resources
\t\t\tfor name, limit := range asked.Limits {
\t\t\t\tif _, isThere := asked.Requests[name]; !isThere {
\t\t\t\t\tif asked.Requests == nil {
\t\t\t\t\t\tasked.Requests = v1.ResourceList{}
\t\t\t\t\t}
\t\t\t\t\tasked.Requests[name] = limit
\t\t\t\t}
\t\t\t}
\t\t}
\t}
\ttotals := map[string]int64{}
\tfor name, amount := range helpers.PodRequests(&v1.Pod{Spec: spec}, helpers.PodResourcesOptions{}) {
\t\ttotals[string(name)] = amount.Value()
\t\tif name == v1.ResourceCPU {
\t\t\ttotals[string(name)] = amount.MilliValue()
\t\t}
\t}
\treturn answer{Totals: totals}, nil
}
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One Go module, and what is kept of it when it is built."""

    name: str
    version: str
    module: str
    programs: tuple[tuple[str, str], ...]  #: our name for the program, the package it is built from ("." for `main`)
    minutes: int  #: a cold build on two busy cores, from scratch
    disk_gib: int  #: what Go's caches grow by meanwhile
    main: str = ""  #: a program of our own around the module's packages; empty: the module's own programs
    kept: tuple[str, ...] = ()  #: files and folders of the module that are needed to run it
    has_staging: bool = False  #: needs the modules inside Kubernetes' tree named one by one

    @property
    def folder(self) -> str:
        """Another version, or another program around it, is another folder."""
        own = f"-{hashlib.sha256(self.main.encode()).hexdigest()[:8]}" if self.main else ""
        return f"{self.name}-{self.version}{own}"


def _kubernetes(*programs: str) -> tuple[tuple[str, str], ...]:
    return tuple((program, f"k8s.io/kubernetes/cmd/{program}") for program in programs)


RECIPES = (
    Recipe(
        "kubernetes",
        KUBERNETES,
        "k8s.io/kubernetes",
        _kubernetes("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"),
        minutes=20,
        disk_gib=5,
        has_staging=True,
    ),
    Recipe(
        "gpu-plugin",
        STAGING,
        "k8s.io/kubelet",
        (("gpu-plugin", "."),),
        minutes=1,
        disk_gib=1,
        main=GPU_PLUGIN_MAIN,
    ),
    Recipe(
        "quantity",
        STAGING,
        "k8s.io/component-helpers",
        (("quantity", "."),),
        minutes=1,
        disk_gib=1,
        main=QUANTITY_MAIN,
    ),
    Recipe("etcd", "3.6.8", "go.etcd.io/etcd/server/v3", (("etcd", "."),), minutes=2, disk_gib=1, main=ETCD_MAIN),
    Recipe(
        "kwok",
        "0.8.0",
        "sigs.k8s.io/kwok",
        (("kwok", "sigs.k8s.io/kwok/cmd/kwok"),),
        minutes=5,
        disk_gib=1,
        kept=("kustomize/stage",),
    ),
    Recipe(
        "jobset",
        "0.10.1",
        "sigs.k8s.io/jobset",
        (("jobset", "sigs.k8s.io/jobset"),),
        minutes=8,
        disk_gib=1,
        kept=("config/components/crd/bases", "config/components/webhook/manifests.yaml"),
    ),
    Recipe(
        "training-operator",
        "1.9.2",
        "github.com/kubeflow/training-operator",
        (("training-operator", "github.com/kubeflow/training-operator/cmd/training-operator.v1"),),
        minutes=8,
        disk_gib=1,
        kept=("manifests/base/crds/kubeflow.org_pytorchjobs.yaml", "manifests/base/webhook/manifests.yaml"),
    ),
    Recipe(
        "mpi-operator",
        "0.6.0",
        "github.com/kubeflow/mpi-operator",
        (("mpi-operator", "github.com/kubeflow/mpi-operator/cmd/mpi-operator"),),
        minutes=5,
        disk_gib=1,
        kept=("manifests/base/kubeflow.org_mpijobs.yaml",),
    ),
    Recipe(
        "coscheduling",
        "0.34.7",
        "sigs.k8s.io/scheduler-plugins",
        (("coscheduling", "sigs.k8s.io/scheduler-plugins/cmd/scheduler"),),
        minutes=8,
        disk_gib=1,
        kept=("manifests/coscheduling/crd.yaml",),
        has_staging=True,
    ),
    Recipe(
        "kueue",
        "0.14.0",
        "sigs.k8s.io/kueue",
        (("kueue", "sigs.k8s.io/kueue/cmd/kueue"),),
        minutes=8,
        disk_gib=1,
        kept=("config/components/crd/bases",),
    ),
    Recipe(
        "coredns", "1.12.0", "github.com/coredns/coredns", (("coredns", "."),), minutes=4, disk_gib=1, main=COREDNS_MAIN
    ),
    Recipe("helm", "3.19.0", "helm.sh/helm/v3", (("helm", "helm.sh/helm/v3/cmd/helm"),), minutes=3, disk_gib=1),
    Recipe(
        "kubeconform",
        "0.7.0",
        "github.com/yannh/kubeconform",
        (("kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform"),),
        minutes=1,
        disk_gib=1,
    ),
)


def recipe_of(program: str) -> Recipe:
    """The recipe that makes a program."""
    for recipe in RECIPES:
        if program in dict(recipe.programs):
            return recipe
    known = ", ".join(name for recipe in RECIPES for name, _ in recipe.programs)
    raise LookupError(f"no recipe makes {program!r}; there are {known}")
