package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	slicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// anyShareID replaces the id of a share, which is different every time.
var anyShareID = types.UID("*")

// filterTimeout is short: a search that takes longer is not worth comparing.
const filterTimeout = 200 * time.Millisecond

type scenario struct {
	Scenario struct {
		Objects []json.RawMessage `json:"objects"`
		Pods    []*v1.Pod         `json:"pods"`
	} `json:"scenario"`
}

type status struct {
	Code    string   `json:"code"`
	Reasons []string `json:"reasons,omitempty"`
}

type nodeResult struct {
	Results  []*resourceapi.AllocationResult `json:"results"`
	Requests []resourceapi.DeviceRequest     `json:"requests,omitempty"`
}

type podResult struct {
	Pod         string                 `json:"pod"`
	PreFilter   status                 `json:"preFilter"`
	Filter      map[string]status      `json:"filter"`
	Allocations map[string]*nodeResult `json:"allocations"`
}

// recorder is the plugin's view of the cluster; it records what Reserve would allocate and keeps nothing of it.
type recorder struct {
	fwk.SharedDRAManager
	claims *claimRecorder
}

type claimRecorder struct {
	fwk.ResourceClaimTracker
	allocated []*resourceapi.ResourceClaim
}

func (r *recorder) ResourceClaims() fwk.ResourceClaimTracker { return r.claims }

func (r *claimRecorder) SignalClaimPendingAllocation(_ types.UID, claim *resourceapi.ResourceClaim) error {
	r.allocated = append(r.allocated, claim)
	return nil
}

func allocate(line []byte) (any, error) {
	var input scenario
	if err := json.Unmarshal(line, &input); err != nil {
		return nil, err
	}
	nodes, objects, err := decode(input.Scenario.Objects)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	defer cancel()
	plugin, claims, err := newPlugin(ctx, objects)
	if err != nil {
		return nil, err
	}
	results := []podResult{}
	for _, pod := range input.Scenario.Pods {
		results = append(results, judge(ctx, plugin, claims, nodes, pod))
	}
	return results, nil
}

func decode(objects []json.RawMessage) ([]fwk.NodeInfo, []runtime.Object, error) {
	var nodes []fwk.NodeInfo
	var others []runtime.Object
	for _, raw := range objects {
		var kind metav1.TypeMeta
		if err := json.Unmarshal(raw, &kind); err != nil {
			return nil, nil, err
		}
		var object runtime.Object
		switch kind.Kind {
		case "Node":
			object = &v1.Node{}
		case "ResourceSlice":
			object = &resourceapi.ResourceSlice{}
		case "ResourceClaim":
			object = &resourceapi.ResourceClaim{}
		case "DeviceClass":
			object = &resourceapi.DeviceClass{}
		default:
			continue
		}
		if err := json.Unmarshal(raw, object); err != nil {
			return nil, nil, err
		}
		if node, ok := object.(*v1.Node); ok {
			info := framework.NewNodeInfo()
			info.SetNode(node)
			nodes = append(nodes, info)
		} else {
			others = append(others, object)
		}
	}
	return nodes, others, nil
}

// newPlugin gives the plugin as kube-scheduler has it once its informers know the objects.
func newPlugin(ctx context.Context, objects []runtime.Object) (*dynamicresources.DynamicResources, *claimRecorder, error) {
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	api := factory.Resource().V1()
	slices, err := slicetracker.StartTracker(ctx, slicetracker.Options{SliceInformer: api.ResourceSlices(), KubeClient: client})
	if err != nil {
		return nil, nil, err
	}
	claimCache := assumecache.NewAssumeCache(klog.FromContext(ctx), api.ResourceClaims().Informer(), "ResourceClaim", "", nil)
	manager := dynamicresources.NewDRAManager(ctx, claimCache, slices, factory)
	resolver := manager.DeviceClassResolver().(*extendedresourcecache.ExtendedResourceCache)
	classes, err := api.DeviceClasses().Informer().AddEventHandler(resolver)
	if err != nil {
		return nil, nil, err
	}
	claims := &claimRecorder{ResourceClaimTracker: manager.ResourceClaims()}
	handle, err := frameworkruntime.NewFramework(ctx, nil, nil,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedDRAManager(&recorder{manager, claims}),
	)
	if err != nil {
		return nil, nil, err
	}
	args := &config.DynamicResourcesArgs{FilterTimeout: &metav1.Duration{Duration: filterTimeout}}
	plugin, err := dynamicresources.New(ctx, args, handle, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	if err != nil {
		return nil, nil, err
	}
	factory.Start(ctx.Done())
	synced := claimCache.AddEventHandler(cache.ResourceEventHandlerFuncs{})
	if !cache.WaitFor(ctx, "event handlers", slices.HasSyncedChecker(), classes.HasSyncedChecker(), synced.HasSyncedChecker()) {
		return nil, nil, fmt.Errorf("informers did not start")
	}
	return plugin.(*dynamicresources.DynamicResources), claims, nil
}

func judge(ctx context.Context, plugin *dynamicresources.DynamicResources, claims *claimRecorder, nodes []fwk.NodeInfo, pod *v1.Pod) podResult {
	state := framework.NewCycleState()
	_, answer := plugin.PreFilter(ctx, state, pod, nodes)
	result := podResult{
		Pod:         pod.Namespace + "/" + pod.Name,
		PreFilter:   shown(answer),
		Filter:      map[string]status{},
		Allocations: map[string]*nodeResult{},
	}
	if !answer.IsSuccess() {
		return result
	}
	for _, node := range nodes {
		name := node.Node().Name
		if answer := plugin.Filter(ctx, state, pod, node); !answer.IsSuccess() {
			result.Filter[name] = shown(answer)
		}
	}
	for _, node := range nodes { // only now, because Reserve changes the state
		name := node.Node().Name
		if _, rejected := result.Filter[name]; rejected {
			continue
		}
		claims.allocated = nil
		if answer := plugin.Reserve(ctx, state, pod, name); !answer.IsSuccess() {
			result.Filter[name] = shown(answer)
		} else if len(claims.allocated) > 0 {
			result.Allocations[name] = allocation(claims.allocated)
		}
	}
	return result
}

func shown(answer *fwk.Status) status {
	if answer.IsSuccess() || answer.IsSkip() {
		return status{Code: answer.Code().String()}
	}
	return status{answer.Code().String(), answer.Reasons()}
}

func allocation(claims []*resourceapi.ResourceClaim) *nodeResult {
	result := &nodeResult{}
	for _, claim := range claims {
		allocated := claim.Status.Allocation.DeepCopy()
		for i := range allocated.Devices.Results {
			if allocated.Devices.Results[i].ShareID != nil {
				allocated.Devices.Results[i].ShareID = &anyShareID
			}
		}
		result.Results = append(result.Results, allocated)
		if claim.Annotations[resourceapi.ExtendedResourceClaimAnnotation] != "" {
			result.Requests = claim.Spec.Devices.Requests
		}
	}
	return result
}
