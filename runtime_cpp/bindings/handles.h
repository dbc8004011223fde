// Python's handles of shared objects of the core: factories of codecs and slicers, policies,
// counts.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "core/codec.h"
#include "core/coordinator.h"
#include "core/message.h"
#include "core/optimizer.h"
#include "core/policy.h"
#include "core/round_policy.h"
#include "core/slicer.h"

namespace geomx {

struct CodecHandle {
  std::shared_ptr<const CodecFactory> factory;
};

struct SlicerHandle {
  std::shared_ptr<const SlicerFactory> factory;
};

struct CoordinatorHandle {
  std::shared_ptr<Coordinator> coordinator;
};

struct OptimizerHandle {
  std::string name;
  std::shared_ptr<const OptimizerFactory> factory;
};

struct RoundsHandle {
  std::shared_ptr<RoundPolicy> policy;
};

struct PolicyHandle {
  std::shared_ptr<PartyPolicy> policy;
};

// (bytes, messages) of one direction.
inline nanobind::tuple Pair(const Traffic& traffic) {
  return nanobind::make_tuple(traffic.bytes, traffic.messages);
}

}  // namespace geomx
