// Writes an optimizer's state, or reads it: one function of the optimizer does both, so that they
// cannot differ. See Optimizer::Save.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/state.h"
#include "kernels/device.h"

namespace geomx {

class OptimizerArchive {
 public:
  explicit OptimizerArchive(FieldWriter& out) : out_(&out) {}
  // `elements`: the length of the tensor that the state must be of.
  OptimizerArchive(StateReader& in, std::uint64_t elements) : in_(&in), elements_(elements) {}

  bool loading() const { return in_ != nullptr; }

  template <class Value>
    requires std::is_arithmetic_v<Value>
  void Number(Value& number) {
    if (in_) {
      number = in_->Get<Value>();
    } else {
      out_->Put(number);
    }
  }

  // A text that must be the same: a name of what follows.
  void Name(std::string_view name) {
    if (out_) return void(out_->Text(name));
    if (const std::string found = in_->Text(); found != name) {
      throw StateError("it is the state of '" + found + "', and not of '" + std::string(name) + "'");
    }
  }

  // Any number of values.
  void Vector(std::string_view name, std::vector<float>& values) {
    Name(name);
    auto count = std::uint64_t{values.size()};
    Number(count);
    if (out_) return void(out_->Append(std::as_bytes(std::span(values))));
    const Bytes bytes = in_->TakeMany(count, sizeof(float));
    values.resize(count);
    if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
  }

  // Values of all elements; or none, where no update has needed them yet.
  void Values(std::string_view name, kernels::Resident& values) {
    Name(name);
    if (out_) {
      const std::vector<std::byte> bytes = values.Fetch();
      out_->Put(std::uint64_t{bytes.size() / sizeof(float)}).Append(bytes);
      return;
    }
    values = {};
    const auto count = in_->Get<std::uint64_t>();
    if (count == 0) return;
    if (count != elements_) {
      throw StateError("it is the state of " + std::to_string(count) + " elements, and the tensor has " +
                       std::to_string(elements_));
    }
    const Bytes bytes = in_->TakeMany(count, sizeof(float));
    std::memcpy(values.At(kernels::Host(), count), bytes.data(), bytes.size());
  }

 private:
  FieldWriter* out_ = nullptr;  // one of the two
  StateReader* in_ = nullptr;
  std::uint64_t elements_ = 0;
};

}  // namespace geomx
