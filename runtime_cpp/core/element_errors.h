// What a codec that rounds keeps of every element for the next value: error feedback (Karimireddy et al.,
// ICML 2019).
//
// Errors belong to elements, whichever rows these are sent in. Those of rows that an earlier codec has
// selected are gathered before the encoding, and scattered to their elements afterwards.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/codec.h"
#include "kernels/bits.h"
#include "kernels/device.h"
#include "kernels/sparse.h"

namespace geomx {

class ElementErrors {
 public:
  // `codec`: its name, for exceptions.
  explicit ElementErrors(std::string codec) : codec_(std::move(codec)) {}

  // The errors of all rows, in order, to be changed in place before Scatter. On the host. Throws
  // std::out_of_range if a row is of no element.
  float* Gather(const Parts& parts) {
    errors_ = resident_.At(kernels::Host(), parts.elements);
    elements_.clear();
    const Part* indices = parts.Find("indices");
    if (indices == nullptr) return errors_;
    elements_.resize(parts.rows);
    UnpackBits(indices->data, parts.rows, indices->bits, elements_.data());
    for (const std::uint32_t element : elements_) {
      if (element >= parts.elements) throw std::out_of_range(codec_ + ": index out of range");
    }
    chosen_.resize(parts.rows);
    kernels::Gather(errors_, elements_.data(), parts.rows, chosen_.data());
    return chosen_.data();
  }
  void Scatter() {
    if (!elements_.empty()) kernels::Scatter(chosen_.data(), elements_.data(), elements_.size(), errors_);
  }

  // Of all elements, for kernels on devices and for archives.
  kernels::Resident& resident() { return resident_; }
  const kernels::Resident& resident() const { return resident_; }

 private:
  std::string codec_;
  kernels::Resident resident_;
  float* errors_ = nullptr;              // of the last Gather, as are the rest
  std::vector<std::uint32_t> elements_;  // of selected rows
  std::vector<float> chosen_;            // their errors
};

}  // namespace geomx
