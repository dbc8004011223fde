#include "core/codec.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace geomx {

std::uint64_t Parts::SliceBytes(std::uint64_t first, std::uint64_t count) const {
  std::uint64_t bytes = 0;
  for (const Part& part : parts) {
    if (part.IsIn(first)) bytes += part.BytesFor(count);
  }
  return bytes;
}

Parts Parts::Dense(std::uint64_t elements, const float* values,
                   std::shared_ptr<const void> owner) {
  Parts parts;
  parts.elements = parts.rows = elements;
  parts.parts.push_back(
      {.name = "values", .bits = 32, .data = reinterpret_cast<const std::byte*>(values)});
  if (owner) parts.owners.push_back(std::move(owner));
  return parts;
}

CodecChain::CodecChain(const Factories& factories, const ShardInfo& shard) {
  for (const auto& factory : factories) codecs_.push_back(factory->Make(shard));
  std::stable_sort(codecs_.begin(), codecs_.end(),
                   [](const auto& a, const auto& b) { return a->stage() < b->stage(); });
}

Parts CodecChain::Layout(std::uint64_t elements, Round round) const {
  Parts parts = Parts::Dense(elements, nullptr, nullptr);
  parts.round = round;
  for (const auto& codec : codecs_) codec->Layout(parts);
  return parts;
}

void CodecChain::Encode(Parts& parts) {
  for (const auto& codec : codecs_) codec->Encode(parts);
}

bool CodecChain::Stateless() const {
  for (const auto& codec : codecs_) {
    if (!codec->Stateless()) return false;
  }
  return true;
}

bool CodecChain::SurvivesHoles() const {
  for (const auto& codec : codecs_) {
    if (!codec->SurvivesHoles()) return false;
  }
  return true;
}

bool CodecChain::FixedSize() const {
  return std::all_of(codecs_.begin(), codecs_.end(), [](auto& codec) { return codec->FixedSize(); });
}

const char* CodecChain::CheckSlice(std::uint64_t elements, std::uint64_t first_row,
                                   std::uint64_t rows, std::uint64_t total_rows,
                                   std::uint64_t payload_bytes, Round round) const {
  std::uint64_t most_rows = elements, bytes = rows * sizeof(float);
  if (!Dense()) {
    const Parts layout = Layout(elements, round);
    most_rows = layout.rows;
    bytes = layout.SliceBytes(first_row, rows);
  }
  if (total_rows > most_rows) return "more rows than the codec makes";
  if (payload_bytes != bytes) return "slice of the wrong size";
  return nullptr;
}

const char* CodecChain::DecodeInto(Bytes payload, std::uint64_t elements, std::uint64_t first_row,
                                   std::uint64_t rows, std::uint64_t total_rows, bool overwrite,
                                   float* out, Round round) const {
  if (const char* reason =
          CheckSlice(elements, first_row, rows, total_rows, payload.size(), round)) {
    return reason;
  }
  Parts parts = Layout(elements, round);
  parts.first_row = first_row;
  parts.rows = rows;
  const std::byte* at = payload.data();
  for (Part& part : parts.parts) {
    if (!part.IsIn(first_row)) continue;
    part.data = at;
    at += part.BytesFor(rows);
  }
  for (auto codec = codecs_.rbegin(); codec != codecs_.rend(); ++codec) (*codec)->Decode(parts);

  const Part* values = parts.Find("values");
  if (values == nullptr || values->bits != 32 ||
      (values->data == nullptr && parts.rows > 0)) {
    return "codec did not decode to float32 values";
  }
  const auto value = [&](std::uint64_t row) {
    float number;  // the payload need not be aligned
    std::memcpy(&number, values->data + row * sizeof number, sizeof number);
    return number;
  };
  if (parts.rows == 0) return nullptr;
  if (const Part* indices = parts.Find("indices")) {
    for (std::uint64_t row = 0; row < parts.rows; ++row) {
      std::uint32_t index;
      std::memcpy(&index, indices->data + row * sizeof index, sizeof index);
      if (index >= elements) return "index out of range";
      out[index] += value(row);
    }
    return nullptr;
  }
  if (parts.first_row + parts.rows > elements) return "rows out of range";
  float* target = out + parts.first_row;
  if (overwrite) {
    std::memcpy(target, values->data, parts.rows * sizeof(float));
  } else {
    for (std::uint64_t row = 0; row < parts.rows; ++row) target[row] += value(row);
  }
  return nullptr;
}

namespace {

// A chain within a chain.
class Sequence final : public Codec {
 public:
  Sequence(const CodecChain::Factories& factories, const ShardInfo& shard) {
    for (const auto& factory : factories) codecs_.push_back(factory->Make(shard));
  }

  void Layout(Parts& parts) const override {
    for (const auto& codec : codecs_) codec->Layout(parts);
  }
  void Encode(Parts& parts) override {
    for (const auto& codec : codecs_) codec->Encode(parts);
  }
  bool Absorb(std::span<const float> relayed) override {
    return !codecs_.empty() && codecs_.front()->Absorb(relayed);
  }
  void Decode(Parts& parts) const override {
    for (auto codec = codecs_.rbegin(); codec != codecs_.rend(); ++codec) (*codec)->Decode(parts);
  }
  bool Stateless() const override {
    return std::all_of(codecs_.begin(), codecs_.end(),
                       [](auto& codec) { return codec->Stateless(); });
  }
  bool SurvivesHoles() const override {
    return std::all_of(codecs_.begin(), codecs_.end(),
                       [](auto& codec) { return codec->SurvivesHoles(); });
  }
  bool FixedSize() const override {
    return std::all_of(codecs_.begin(), codecs_.end(),
                       [](auto& codec) { return codec->FixedSize(); });
  }
  // That of its first codec; what does nothing may stand anywhere.
  Stage stage() const override {
    return codecs_.empty() ? Stage::kSelect : codecs_.front()->stage();
  }

 private:
  std::vector<std::unique_ptr<Codec>> codecs_;
};

}  // namespace

std::unique_ptr<Codec> BySizeFactory::Make(const ShardInfo& shard) const {
  return std::make_unique<Sequence>(shard.elements >= bound_ ? large_ : small_, shard);
}

}  // namespace geomx
