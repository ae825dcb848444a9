package main

import (
	"context"
	"encoding/json"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// unknownCost is the recorded estimate of what does not compile.
const unknownCost = uint64(1) << 63

type evaluation struct {
	Expression string             `json:"expression"`
	Driver     string             `json:"driver"`
	Device     resourceapi.Device `json:"device"`
}

type outcome struct {
	Want    map[string]any `json:"want"`
	Cost    uint64         `json:"cost"`
	MaxCost uint64         `json:"maxCost"`
}

var compiler = dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true})

func evaluate(line []byte) (result any, err error) {
	defer func() { // some expressions crash Kubernetes
		if problem := recover(); problem != nil {
			result = outcome{Want: map[string]any{"panic": fmt.Sprint(problem)}}
		}
	}()
	var input evaluation
	if err := json.Unmarshal(line, &input); err != nil {
		return nil, err
	}
	compiled := compiler.CompileCELExpression(input.Expression, dracel.Options{})
	if compiled.Error != nil {
		return outcome{map[string]any{"compileError": compiled.Error.Error()}, 0, unknownCost}, nil
	}
	found := outcome{MaxCost: compiled.MaxCost}
	matches, details, err := compiled.DeviceMatches(context.Background(), dracel.Device{
		Driver:                   input.Driver,
		AllowMultipleAllocations: input.Device.AllowMultipleAllocations,
		Attributes:               input.Device.Attributes,
		Capacity:                 input.Device.Capacity,
	})
	if cost := details.ActualCost(); cost != nil {
		found.Cost = *cost
	}
	found.Want = map[string]any{"match": matches}
	if err != nil {
		found.Want = map[string]any{"error": err.Error()}
	}
	return found, nil
}
