// Codebooks: Lloyd-Max levels and boundaries of one coordinate of a randomly rotated vector of mean square 1, by head
// size; sizes without a table of their own take the limit, the normal law. Tables are symmetric. Pure, [any].
#pragma once

#include <cmath>
#include <cstdint>

namespace turbo::rotated_kv {

/// Code 0 is the most negative level; code of u = number of boundaries <= u. Unused entries repeat the used ones
/// with the period 2^bits (levels) or are +infinity (boundaries).
struct Codebook {
  float level[16], boundary[16];
  int8_t level8[16];   // round(level * 127 / largest)
  float level8_unit;   // largest / 127
  double distortion;   // expected squared error per coordinate with the plain norm as scale
};

namespace detail {

struct HalfTable {
  uint32_t d, bits;  // d 0: any other size
  float level[8], boundary[8];
  double distortion;
};

inline constexpr HalfTable kHalfTables[] = {
    {0, 2, {0.4527800f, 1.5104176f},
     {0.9815988f}, 0.1174818},
    {0, 3, {0.2450942f, 0.7560053f, 1.3439093f, 2.1519457f},
     {0.5005497f, 1.0499573f, 1.7479275f}, 0.0345478},
    {0, 4, {0.1283950f, 0.3880483f, 0.6567591f, 0.9423405f, 1.2562312f, 1.6180464f, 2.0690172f, 2.7325896f},
     {0.2582217f, 0.5224037f, 0.7995498f, 1.0992858f, 1.4371388f, 1.8435318f, 2.4008034f}, 0.0095010},
    {64, 2, {0.4521189f, 1.4999748f},
     {0.9760469f}, 0.1145258},
    {64, 3, {0.2437534f, 0.7506581f, 1.3293429f, 2.1113114f},
     {0.4972058f, 1.0400005f, 1.7203272f}, 0.0333908},
    {64, 4, {0.1273522f, 0.3847183f, 0.6504941f, 0.9318940f, 1.2394042f, 1.5908491f, 2.0233098f, 2.6463705f},
     {0.2560352f, 0.5176062f, 0.7911941f, 1.0856491f, 1.4151267f, 1.8070795f, 2.3348401f}, 0.0091315},
    {80, 2, {0.4522536f, 1.5020613f},
     {0.9771574f}, 0.1151146},
    {80, 3, {0.2440223f, 0.7517265f, 1.3322387f, 2.1193375f},
     {0.4978744f, 1.0419826f, 1.7257881f}, 0.0336201},
    {80, 4, {0.1275604f, 0.3853827f, 0.6517422f, 0.9339703f, 1.2427393f, 1.5962214f, 2.0322994f, 2.6632193f},
     {0.2564716f, 0.5185624f, 0.7928562f, 1.0883548f, 1.4194804f, 1.8142604f, 2.3477593f}, 0.0092045},
    {96, 2, {0.4523427f, 1.5034528f},
     {0.9778977f}, 0.1155078},
    {96, 3, {0.2442013f, 0.7524391f, 1.3341741f, 2.1247161f},
     {0.4983202f, 1.0433066f, 1.7294451f}, 0.0337735},
    {96, 4, {0.1276994f, 0.3858261f, 0.6525756f, 0.9353581f, 1.2449712f, 1.5998215f, 2.0383343f, 2.6745601f},
     {0.2567628f, 0.5192009f, 0.7939669f, 1.0901647f, 1.4223964f, 1.8190779f, 2.3564472f}, 0.0092534},
    {128, 2, {0.4524532f, 1.5051930f},
     {0.9788231f}, 0.1160001},
    {128, 3, {0.2444249f, 0.7533302f, 1.3365989f, 2.1314708f},
     {0.4988775f, 1.0449645f, 1.7340349f}, 0.0339659},
    {128, 4, {0.1278731f, 0.3863809f, 0.6536189f, 0.9370970f, 1.2477704f, 1.6043426f, 2.0459253f, 2.6888592f},
     {0.2571270f, 0.5199999f, 0.7953580f, 1.0924337f, 1.4260565f, 1.8251340f, 2.3673923f}, 0.0093148},
    {256, 2, {0.4526176f, 1.5078045f},
     {0.9802110f}, 0.1167400},
    {256, 3, {0.2447598f, 0.7546674f, 1.3402473f, 2.1416686f},
     {0.4997136f, 1.0474573f, 1.7409580f}, 0.0342560},
    {256, 4, {0.1281340f, 0.3872140f, 0.6551871f, 0.9397137f, 1.2519890f, 1.6111680f, 2.0574111f, 2.7105669f},
     {0.2576740f, 0.5212006f, 0.7974504f, 1.0958513f, 1.4315785f, 1.8342896f, 2.3839890f}, 0.0094075},
};

}  // namespace detail

/// bits is 2, 3 or 4.
inline Codebook make_codebook(uint32_t d, uint32_t bits) {
  const detail::HalfTable* table_of_size = nullptr;
  for (const detail::HalfTable& candidate : detail::kHalfTables)  // the limit comes first, so a size's own table wins
    if (candidate.bits == bits && (candidate.d == 0 || candidate.d == d)) table_of_size = &candidate;
  const detail::HalfTable& table = *table_of_size;
  const int half = 1 << (bits - 1), n = 2 * half;
  Codebook book{};
  book.distortion = table.distortion;
  book.level8_unit = table.level[half - 1] / 127.0f;
  for (int i = 0; i < 16; ++i) {
    const int code = i % n;
    const float magnitude = table.level[code < half ? half - 1 - code : code - half];
    book.level[i] = code < half ? -magnitude : magnitude;
    const double scaled = std::nearbyint(static_cast<double>(magnitude) * 127.0 / static_cast<double>(table.level[half - 1]));
    book.level8[i] = static_cast<int8_t>(code < half ? -scaled : scaled);
    book.boundary[i] = INFINITY;
  }
  for (int i = 0; i < half - 1; ++i) {
    book.boundary[half + i] = table.boundary[i];
    book.boundary[half - 2 - i] = -table.boundary[i];
  }
  book.boundary[half - 1] = 0.0f;
  return book;
}

}  // namespace turbo::rotated_kv
