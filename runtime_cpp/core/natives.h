// The registry of plugins' native parts.
//
// A plugin folder may hold C++ sources with a static `NativeCodec`, `NativeSlicer` or `NativePolicy`.
// Its Python side names it with options (numbers only), and the core creates one wherever it is
// needed: per shard and link for codecs and slicers, per node for policies. Both drivers use these
// objects, so a plugin's decisions are written once.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/codec.h"
#include "core/coordinator.h"
#include "core/policy.h"
#include "core/round_policy.h"
#include "core/slicer.h"

namespace geomx {

using Options = std::map<std::string, double>;

// Returns a named option; throws std::invalid_argument if the Python side has not passed it.
inline double Require(const Options& options, const std::string& name) {
  const auto found = options.find(name);
  if (found == options.end()) throw std::invalid_argument("missing option " + name);
  return found->second;
}

template <class Product>
class Natives {
 public:
  using Make = std::function<Product(const Options&)>;

  static Natives& Instance() {
    static Natives natives;
    return natives;
  }

  void Add(const std::string& name, Make make) { makers_[name] = std::move(make); }

  // Throws std::invalid_argument if no part of that name was compiled in, or an option is NaN (most
  // options are converted to integers).
  Product Create(const std::string& name, const Options& options) const {
    const auto found = makers_.find(name);
    if (found == makers_.end()) throw std::invalid_argument("no native part named " + name);
    for (const auto& [option, value] : options) {
      if (std::isnan(value)) throw std::invalid_argument("option " + option + " is NaN");
    }
    return found->second(options);
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [name, make] : makers_) names.push_back(name);
    return names;
  }

 private:
  std::map<std::string, Make> makers_;
};

using NativeCodecs = Natives<std::shared_ptr<const CodecFactory>>;
using NativeSlicers = Natives<std::shared_ptr<const SlicerFactory>>;
using NativeCoordinators = Natives<std::shared_ptr<Coordinator>>;
using NativePolicies = Natives<std::shared_ptr<PartyPolicy>>;
using NativeRounds = Natives<std::shared_ptr<RoundPolicy>>;

// static const Registered<NativeCodecs> registered("mine", MakeCodecFactory<Mine>);
template <class Kind>
struct Registered {
  Registered(const std::string& name, typename Kind::Make make) {
    Kind::Instance().Add(name, std::move(make));
  }
};

// A factory for a codec or slicer class whose constructor takes (options, shard).
template <class FactoryBase, class Base, class Derived>
class SimpleFactory final : public FactoryBase {
 public:
  explicit SimpleFactory(Options options) : options_(std::move(options)) {}
  std::unique_ptr<Base> Make(const ShardInfo& shard) const override {
    return std::make_unique<Derived>(options_, shard);
  }

 private:
  Options options_;
};

template <class Derived>
std::shared_ptr<const CodecFactory> MakeCodecFactory(const Options& options) {
  return std::make_shared<SimpleFactory<SingleCodecFactory, Codec, Derived>>(options);
}

template <class Derived>
std::shared_ptr<const SlicerFactory> MakeSlicerFactory(const Options& options) {
  return std::make_shared<SimpleFactory<SlicerFactory, Slicer, Derived>>(options);
}

}  // namespace geomx
