// What Python holds of things that the core shares: factories of codecs and slicers, policies.
#pragma once

#include <memory>

#include "core/codec.h"
#include "core/policy.h"
#include "core/slicer.h"

namespace geomx {

struct CodecHandle {
  std::shared_ptr<const CodecFactory> factory;
};

struct SlicerHandle {
  std::shared_ptr<const SlicerFactory> factory;
};

struct PolicyHandle {
  std::shared_ptr<PartyPolicy> policy;
};

}  // namespace geomx
