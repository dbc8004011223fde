// The weights of one shard and the optimizer that moves them, wherever they are kept: on its global
// server or, where updates happen at the parties, on every local server.
#pragma once

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/inbox.h"
#include "core/optimizer.h"
#include "kernels/sums.h"

namespace geomx {

// "optimizer\nNAME\nOPTION VALUE\n..." Throws std::invalid_argument for anything else.
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
  // Null if there is none; empty if phantom. What was handed out before stays as it was.
  std::shared_ptr<const Buffer> value() const { return value_; }

  void Set(Buffer value) { value_ = std::make_shared<Buffer>(std::move(value)); }
  void ForgetOptimizer() { optimizer_.reset(); }

  // Apply a gradient. Without an optimizer `gradient` replaces the value, or is added to it.
  // REQUIRES: has_value(), if there is an optimizer.
  void Update(Buffer gradient, const std::optional<OptimizerSpec>& spec, Key key,
              const Contribution& from, bool accumulate) {
    if (gradient.empty() || value_ == nullptr || (!spec && !accumulate)) {
      Set(std::move(gradient));
      return;
    }
    // An answer may still be leaving from the old value's memory.
    if (value_.use_count() > 1) value_ = std::make_shared<Buffer>(*value_);
    if (!spec) {
      const float* const terms[] = {gradient.data()};
      kernels::Add(value_->data(), terms, 1, gradient.size());
      return;
    }
    if (!optimizer_) optimizer_ = Optimizer::Make(*spec, key);
    optimizer_->Update(*value_, gradient, from);
  }

 private:
  std::shared_ptr<Buffer> value_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace geomx
