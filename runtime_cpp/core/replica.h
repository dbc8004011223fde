// The weights of one shard and their optimizer: on the shard's global server or, where updates
// happen at the parties, on every local server.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/inbox.h"
#include "core/optimizer.h"
#include "kernels/sums.h"
#include "kernels/device.h"

namespace geomx {

// What a master worker sends for servers to run an optimizer: "optimizer\nNAME\nOPTION VALUE\n..."
inline std::string Instruction(const std::string& optimizer) { return "optimizer\n" + optimizer; }

// Throws std::invalid_argument for anything else.
inline OptimizerSpec ParseInstruction(const std::string& text, const OptimizerFactories& plugins) {
  const std::size_t line_end = text.find('\n');
  const std::string verb = text.substr(0, line_end);
  if (verb != "optimizer" || line_end == std::string::npos) {
    throw std::invalid_argument("unknown instruction " + verb);
  }
  return OptimizerSpec::Parse(text.substr(line_end + 1), plugins);
}

class Replica {
 public:
  bool has_value() const { return value_ != nullptr; }
  // Returns null if there is no value; an empty one if phantom. Values returned earlier do not
  // change.
  std::shared_ptr<const Buffer> value() const { return value_; }

  void Set(Buffer value) {
    value_ = std::make_shared<Buffer>(std::move(value));
    there_ = nullptr;
  }
  void ForgetOptimizer() { optimizer_.reset(); }
  // `source` is given the value otherwise than in answer to a gradient. REQUIRES: no device is at work.
  void NoteGiven(NodeId source) {
    if (optimizer_) optimizer_->NoteGiven(source, *value_);
  }
  // Empty: the optimizer has not made an update yet.
  std::vector<std::byte> SaveOptimizer() const {
    return optimizer_ ? optimizer_->Save() : std::vector<std::byte>();
  }
  // Nothing stands for an optimizer that has made no update. Throws StateError; the optimizer then
  // begins anew.
  void LoadOptimizer(Bytes saved, const OptimizerSpec& spec, Key key) {
    optimizer_.reset();
    if (saved.empty()) return;
    if (!value_) throw StateError("the tensor has no value yet");
    auto optimizer = Optimizer::Make(spec, key);
    optimizer->Load(saved, value_->size());
    optimizer_ = std::move(optimizer);
  }

  // `spec`: what the optimizer was made from. REQUIRES: no device is at work.
  void Exchange(Archive& archive, const std::optional<OptimizerSpec>& spec, Key key) {
    archive(value_);
    std::vector<std::byte> saved;
    if (!archive.loading()) saved = SaveOptimizer();
    archive(saved);
    if (!archive.loading() || saved.empty()) return;
    if (!spec) throw StateError("it has the state of an optimizer, and no optimizer");
    LoadOptimizer(saved, *spec, key);
  }

  // Applies a gradient. Without an optimizer `gradient` replaces the value, or is added to it. The
  // optimizer runs on `device` if that is not null and it has device kernels. An absent gradient is
  // skipped: weights and state stay as they are, without decay or momentum. Returns true if value()
  // is the new one; otherwise the work is queued on the device, and the next call must be Complete,
  // when that is done. REQUIRES: has_value(), if there is an optimizer.
  bool Update(Buffer gradient, const std::optional<OptimizerSpec>& spec, Key key,
              const GradientSource& from, bool accumulate, kernels::Device* device) {
    if (gradient.empty() || value_ == nullptr || (!spec && !accumulate)) {
      Set(std::move(gradient));
      return true;
    }
    if (spec && from.absent && Zeros(gradient)) return true;
    if (spec && !optimizer_) optimizer_ = Optimizer::Make(*spec, key);
    if (spec && device != nullptr && optimizer_->OnDevices()) {
      UpdateOn(*device, gradient, from);
      return false;
    }
    // An answer may still be sent from the old value's memory.
    if (value_.use_count() > 1) value_ = std::make_shared<Buffer>(*value_);
    there_ = nullptr;
    if (spec) {
      optimizer_->Update(*value_, gradient, from);
    } else {
      const float* const terms[] = {gradient.data()};
      kernels::Add(value_->data(), terms, 1, gradient.size());
    }
    return true;
  }
  // Replaces a party's gradient, the sum over `share` of all workers, by the step that the optimizer
  // makes with it, as this party's part of everybody's; the value stays as it is. An optimizer whose
  // steps do not follow the gradient's scale sees the noise of a part of the batch only, and makes steps
  // shorter by the root of the share; that is made up for here, but not in a decay that does not depend on
  // gradients. REQUIRES: has_value(); on the host.
  void Step(Buffer& gradient, const OptimizerSpec& spec, Key key, const GradientSource& from, double share) {
    if (from.absent && Zeros(gradient)) return;
    if (!optimizer_) optimizer_ = Optimizer::Make(spec, key);
    const auto whole = static_cast<float>(1 / share);
    for (float& value : gradient) value *= whole;
    Buffer after = *value_;
    optimizer_->Update(after, gradient, from);
    const auto part = static_cast<float>(optimizer_->ScaleFree() ? std::sqrt(share) : share);
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = part * (after[i] - (*value_)[i]);
    const float decay = (static_cast<float>(share) - part) * optimizer_->Decay();
    if (decay == 0) return;
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] -= decay * (*value_)[i];
  }
  void Complete() {
    const auto* values = reinterpret_cast<const float*>(coming_.get());
    value_ = std::make_shared<Buffer>(values, values + value_->size());
    coming_ = nullptr;
  }

 private:
  static bool Zeros(const Buffer& values) {
    return std::all_of(values.begin(), values.end(), [](float value) { return value == 0.0f; });
  }

  // The weights stay on the device; the host gets a copy for answers.
  void UpdateOn(kernels::Device& device, const Buffer& gradient, const GradientSource& from) {
    const std::size_t n = gradient.size(), bytes = n * sizeof(float);
    if (there_ == nullptr) there_ = device.Upload(value_->data(), bytes);
    const std::shared_ptr<std::byte> term = device.Upload(gradient.data(), bytes);
    optimizer_->UpdateOn(device.context(), {reinterpret_cast<float*>(there_.get()), n},
                         {reinterpret_cast<const float*>(term.get()), n}, from);
    coming_ = device.Download(there_.get(), bytes);
  }

  std::shared_ptr<Buffer> value_;
  std::shared_ptr<std::byte> there_;   // the same on the device, if it has a copy
  std::shared_ptr<std::byte> coming_;  // the next value, being copied from the device
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace geomx
