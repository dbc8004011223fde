#include "core/codec.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "kernels/sparse.h"
#include "kernels/sums.h"

namespace geomx {

std::uint64_t Parts::SliceBytes(std::uint64_t first, std::uint64_t count) const {
  std::uint64_t bytes = 0;
  for (const Part& part : parts) {
    if (part.IsIn(first)) bytes += part.BytesFor(count);
  }
  return bytes;
}

double Parts::RowBits() const {
  double bits = 0;
  for (const Part& part : parts) {
    if (!part.whole) bits += static_cast<double>(part.bits) / static_cast<double>(part.span);
  }
  return bits;
}

std::uint64_t Parts::Granule() const {
  std::uint64_t rows = 1;
  for (const Part& part : parts) {
    if (!part.whole) rows = std::lcm(rows, part.span * (8 / std::gcd(part.bits, 8u)));
  }
  return rows;
}

std::uint64_t Parts::RowsIn(std::uint64_t bytes) const {
  if (parts.size() == 1 && !parts[0].whole && parts[0].span == 1 && parts[0].bits % 8 == 0) {
    return 8 * std::max<std::uint64_t>(1, bytes / parts[0].bits);  // the same, for most messages
  }
  const std::uint64_t step = std::lcm(Granule(), std::uint64_t{8});
  std::uint64_t step_bits = 0;
  for (const Part& part : parts) step_bits += part.whole ? 0 : step / part.span * part.bits;
  return step * std::max<std::uint64_t>(1, bytes * 8 / std::max<std::uint64_t>(1, step_bits));
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
  for (const auto& factory : factories) factory->AddTo(codecs_, shard);
  std::stable_sort(codecs_.begin(), codecs_.end(),
                   [](const auto& a, const auto& b) { return a->stage() < b->stage(); });
  if (codecs_.empty() || !codecs_.front()->Linear()) return;
  std::size_t concerned = 0;
  const Parts parts = Layout(shard.elements, 1, concerned);
  linear_ = parts.Find("indices") == nullptr &&
            std::all_of(codecs_.begin(), codecs_.begin() + static_cast<std::ptrdiff_t>(concerned),
                        [](auto& codec) { return codec->Linear(); });
}

Parts CodecChain::Layout(std::uint64_t elements, Turn turn) const {
  std::size_t concerned = 0;
  return Layout(elements, turn, concerned);
}

Parts CodecChain::Layout(std::uint64_t elements, Turn turn, std::size_t& concerned) const {
  Parts parts = Parts::Dense(elements, nullptr, nullptr);
  parts.round = turn.round;
  parts.last = turn.last;
  concerned = 0;
  for (const auto& codec : codecs_) {
    if (!Codec::Concerns(parts)) break;
    codec->Layout(parts);
    ++concerned;
  }
  return parts;
}

std::size_t CodecChain::EncodeOn(kernels::DeviceContext& device, Parts& parts) {
  std::size_t done = 0;
  for (; done < size() && Codec::Concerns(parts); ++done) {
    if (!codecs_[done]->OnDevices()) return done;
    codecs_[done]->EncodeOn(device, parts);
  }
  return size();
}

bool CodecChain::OnDevices(std::uint64_t elements) const {
  std::size_t concerned = 0;
  Layout(elements, 1, concerned);
  return std::all_of(codecs_.begin(), codecs_.begin() + static_cast<std::ptrdiff_t>(concerned),
                     [](auto& codec) { return codec->OnDevices(); });
}

bool CodecChain::DecodesOnDevices(std::uint64_t elements) const {
  std::size_t concerned = 0;
  Layout(elements, 1, concerned);
  return concerned == 1 && codecs_.front()->DecodesOnDevices();
}

void CodecChain::EncodeFrom(std::size_t first, Parts& parts) {
  for (std::size_t i = first; i < size() && Codec::Concerns(parts); ++i) codecs_[i]->Encode(parts);
}

std::size_t CodecChain::EncodeThrough(kernels::Device& device, Parts& parts) {
  Part* values = parts.Find("values");
  const std::shared_ptr<std::byte> there =
      device.Upload(values->data, parts.elements * sizeof(float));
  values->data = there.get();
  parts.owners.clear();
  kernels::DeviceContext context = device.context();
  const std::size_t done = EncodeOn(context, parts);
  for (auto& owner : std::exchange(parts.owners, {})) device.Keep(std::move(owner));
  for (Part& part : parts.parts) {
    const std::shared_ptr<std::byte> here = device.Download(part.data, part.BytesFor(parts.rows));
    part.data = here.get();
    parts.owners.push_back(here);
  }
  return done;
}

bool CodecChain::Stateless() const {
  for (const auto& codec : codecs_) {
    if (!codec->Stateless()) return false;
  }
  return true;
}

bool CodecChain::SurvivesHoles() const {
  if (linear_) return false;
  for (const auto& codec : codecs_) {
    if (!codec->SurvivesHoles()) return false;
  }
  return true;
}

double CodecChain::SquaredResidual() const {
  double squares = 0;
  for (const auto& codec : codecs_) squares += codec->SquaredResidual();
  return squares;
}

bool CodecChain::FixedSize() const {
  return std::all_of(codecs_.begin(), codecs_.end(), [](auto& codec) { return codec->FixedSize(); });
}

const char* CodecChain::CheckSlice(const Parts& layout, std::uint64_t first_row,
                                   std::uint64_t rows, std::uint64_t total_rows,
                                   std::uint64_t payload_bytes) const {
  if (total_rows > layout.rows) return "more rows than the codec makes";
  if (payload_bytes != layout.SliceBytes(first_row, rows)) return "slice of the wrong size";
  const std::uint64_t granule = layout.Granule();
  if (granule > 8 && first_row % granule != 0) return "slice that begins within a chunk";
  if (granule > 8 && rows % granule != 0 && first_row + rows != total_rows) {
    return "slice that ends within a chunk";
  }
  return nullptr;
}

const char* CodecChain::CheckSlice(std::uint64_t elements, std::uint64_t first_row,
                                   std::uint64_t rows, std::uint64_t total_rows,
                                   std::uint64_t payload_bytes, Turn turn) const {
  if (!Dense()) {
    return CheckSlice(Layout(elements, turn), first_row, rows, total_rows, payload_bytes);
  }
  if (total_rows > elements) return "more rows than the codec makes";
  return payload_bytes == rows * sizeof(float) ? nullptr : "slice of the wrong size";
}

const char* CodecChain::DecodeInto(Bytes payload, std::uint64_t elements, std::uint64_t first_row,
                                   std::uint64_t rows, std::uint64_t total_rows, bool overwrite,
                                   float* out, Turn turn) const {
  std::size_t concerned = 0;
  Parts parts = Layout(elements, turn, concerned);
  if (const char* reason = CheckSlice(parts, first_row, rows, total_rows, payload.size())) {
    return reason;
  }
  parts.first_row = first_row;
  parts.rows = rows;
  const std::byte* at = payload.data();
  for (Part& part : parts.parts) {
    if (!part.IsIn(first_row)) continue;
    part.data = at;
    at += part.BytesFor(rows);
  }
  return Undo(parts, concerned, elements, overwrite, out);
}

const char* CodecChain::Undo(Parts& parts, std::size_t concerned, std::uint64_t elements,
                             bool overwrite, float* out) const {
  const std::uint64_t first_row = parts.first_row;
  const auto in_range = [&] { return parts.first_row + parts.rows <= elements; };
  for (std::size_t left = concerned; left > 0; --left) {
    const Codec& codec = *codecs_[left - 1];
    if (left == 1 && in_range() && codec.DecodeStraight(parts, overwrite, out + first_row)) {
      return nullptr;
    }
    codec.Decode(parts);
  }

  const Part* values = parts.Find("values");
  if (values == nullptr || values->bits != 32 ||
      (values->data == nullptr && parts.rows > 0)) {
    return "codec did not decode to float32 values";
  }
  if (parts.rows == 0) return nullptr;
  if (const Part* indices = parts.Find("indices")) {
    const bool added =
        kernels::ScatterAdd(values->data, indices->data, parts.rows, elements, out);
    return added ? nullptr : "index out of range";
  }
  if (!in_range()) return "rows out of range";
  float* target = out + parts.first_row;
  if (overwrite) {
    std::memcpy(target, values->data, parts.rows * sizeof(float));
  } else {
    kernels::AddBytes(values->data, target, parts.rows);
  }
  return nullptr;
}

// ---- linear chains ---------------------------------------------------------------------------

Buffer CodecChain::Gather(const Parts& encoded) {
  Buffer vector;
  for (const Part& part : encoded.parts) {
    if (part.data == nullptr) return {};
    const std::size_t end = vector.size();
    vector.resize(end + part.BytesFor(encoded.rows) / sizeof(float));
    if (vector.size() > end) {
      std::memcpy(vector.data() + end, part.data, (vector.size() - end) * sizeof(float));
    }
  }
  return vector;
}

Parts CodecChain::View(std::uint64_t elements, Turn turn, const float* encoded,
                       std::shared_ptr<const void> owner) const {
  Parts parts = Layout(elements, turn);
  if (encoded == nullptr) return parts;
  const auto* at = reinterpret_cast<const std::byte*>(encoded);
  for (Part& part : parts.parts) {
    part.data = at;
    at += part.BytesFor(parts.rows);
  }
  if (owner) parts.owners.push_back(std::move(owner));
  return parts;
}

const char* CodecChain::Keep(Bytes payload, std::uint64_t elements, std::uint64_t first_row,
                             std::uint64_t rows, std::uint64_t total_rows,
                             Buffer& encoded, Turn turn) const {
  const Parts layout = Layout(elements, turn);
  if (const char* reason = CheckSlice(layout, first_row, rows, total_rows, payload.size())) {
    return reason;
  }
  if (total_rows != layout.rows) return "fewer rows than the codec makes";
  encoded.resize((layout.SliceBytes(0, layout.rows) + sizeof(float) - 1) / sizeof(float), 0.0f);
  const std::byte* from = payload.data();
  auto* to = reinterpret_cast<std::byte*>(encoded.data());
  for (const Part& part : layout.parts) {
    if (part.IsIn(first_row)) {
      const std::uint64_t bytes = part.BytesFor(rows);
      if (bytes > 0) std::memcpy(to + (part.whole ? 0 : part.BytesFor(first_row)), from, bytes);
      from += bytes;
    }
    to += part.BytesFor(layout.rows);
  }
  return nullptr;
}

Buffer CodecChain::Decoded(std::span<const float> encoded, std::uint64_t elements,
                                       Turn turn) const {
  std::size_t concerned = 0;
  Layout(elements, turn, concerned);
  Parts parts = View(elements, turn, encoded.data(), nullptr);
  Buffer dense(elements, 0.0f);
  if (const char* reason = Undo(parts, concerned, elements, true, dense.data())) {
    throw std::runtime_error(reason);
  }
  return dense;
}

void CodecChain::Settle(std::span<const float> encoded, std::uint64_t elements, Turn turn) {
  std::size_t concerned = 0;
  Layout(elements, turn, concerned);
  Parts parts = View(elements, turn, encoded.data(), nullptr);
  for (std::size_t left = concerned; left > 0; --left) {
    const Parts sum = parts;
    if (left > 1) codecs_[left - 1]->Decode(parts);  // its output is the previous codec's input
    codecs_[left - 1]->Settle(sum);
  }
}

namespace {

// The codec of an empty list: values leave unchanged, and count as encoded.
class Unchanged final : public Codec {
 public:
  void Layout(Parts&) const override {}
  void Encode(Parts&) override {}
  bool OnDevices() const override { return true; }
  void Decode(Parts&) const override {}
  void Exchange(Archive&) override {}
  bool Stateless() const override { return true; }
  bool FixedSize() const override { return true; }
};

}  // namespace

void BySizeFactory::AddTo(Codecs& codecs, const ShardInfo& shard) const {
  const CodecChain::Factories& chosen = shard.elements >= bound_ ? large_ : small_;
  if (chosen.empty()) codecs.push_back(std::make_unique<Unchanged>());
  for (const auto& factory : chosen) factory->AddTo(codecs, shard);
}

}  // namespace geomx
