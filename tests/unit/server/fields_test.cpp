// Every field of every table: right and wrong types, both edges of its range, null and absent.
#include "server/fields.h"

#include <gtest/gtest.h>

#include <cmath>

namespace turbo::server {
namespace {

Json example(unsigned type) {
  switch (type) {
    case kBoolean: return true;
    case kInteger: return 3;
    case kNumber: return 0.5;
    case kString: return "text";
    case kObject: return Json::object();
    default: return Json::array();
  }
}

std::string code(const Json& body, const Field& field) {
  Field only = field;
  only.required = false;
  const auto error = check_fields(body, std::span(&only, 1));
  if (!error) return "";
  EXPECT_EQ(error->param, field.name);
  return error->code;
}

bool is_integer_only(const Field& field) { return (field.types & kInteger) && !(field.types & kNumber); }

class Table : public ::testing::TestWithParam<int> {
 protected:
  static std::span<const Field> table() {
    switch (GetParam()) {
      case 0: return chat_fields();
      case 1: return completion_fields();
      case 2: return tokenize_fields();
      case 3: return detokenize_fields();
      default: return turbo_fields();
    }
  }
};

TEST_P(Table, WrongTypesAreNamed) {
  for (const Field& field : table())
    for (const unsigned type : {kBoolean, kInteger, kNumber, kString, kObject, kArray}) {
      const Json body{{field.name, example(type)}};
      const bool fits = (field.types & type) || (type == kInteger && (field.types & kNumber));
      const std::string got = code(body, field);
      if (fits) {
        EXPECT_NE(got, "invalid_type") << field.name;
        if (field.refuse != Field::Refuse::no) {
          EXPECT_NE(got, "") << field.name << " must not be ignored";
        }
      } else {
        EXPECT_EQ(got, "invalid_type") << field.name << " took " << body.dump();
      }
    }
}

TEST_P(Table, WhatIsWrongIsSaidBeforeWhatIsNotOffered) {
  for (const Field& refused : table())
    if (refused.refuse != Field::Refuse::no)
      for (const Field& field : table()) {
        if (field.refuse != Field::Refuse::no || field.required || (field.types & kArray)) continue;
        const Json body{{refused.name, example(refused.types & kArray ? kArray : refused.types & kObject ? kObject : kString)},
                        {field.name, Json::array()}};
        const Field both[] = {refused, field};
        const auto error = check_fields(body, both);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->param, field.name);
        EXPECT_EQ(error->code, "invalid_type");
      }
}

TEST_P(Table, NullIsAbsent) {
  for (const Field& field : table()) EXPECT_EQ(code(Json{{field.name, nullptr}}, field), "");
}

TEST_P(Table, RangesHoldAtBothEdges) {
  for (const Field& field : table()) {
    if (!(field.types & (kInteger | kNumber)) || field.refuse != Field::Refuse::no) continue;
    const double step = is_integer_only(field) ? 1.0 : 1e-3;
    const auto probe = [&](double x) { return code(Json{{field.name, x}}, field); };
    EXPECT_EQ(probe(field.min), field.above_min || field.min < -9.2e18 ? "out_of_range" : "") << field.name;
    if (std::abs(field.min) < 1e15) {
      EXPECT_EQ(probe(field.min - step), "out_of_range") << field.name;
    }
    if (field.max < 1e15) {
      EXPECT_EQ(probe(field.max), "") << field.name;
      EXPECT_EQ(probe(field.max + step), "out_of_range") << field.name;
    }
    if (is_integer_only(field)) {
      EXPECT_EQ(probe(1.5), "invalid_type") << field.name;
      EXPECT_EQ(probe(1e30), "out_of_range") << field.name;
      EXPECT_EQ(code(Json{{field.name, UINT64_MAX}}, field), "out_of_range") << field.name;
    }
  }
}

TEST_P(Table, SizesAndChoicesHold) {
  for (const Field& field : table()) {
    if (field.refuse != Field::Refuse::no) continue;
    if ((field.types & kString) && field.max < 1e6) {
      if (field.choices.empty()) {
        EXPECT_EQ(code(Json{{field.name, std::string(static_cast<size_t>(field.max), 'x')}}, field), "") << field.name;
      }
      EXPECT_EQ(code(Json{{field.name, std::string(static_cast<size_t>(field.max) + 1, 'x')}}, field), "out_of_range") << field.name;
    }
    for (const char* choice : field.choices) EXPECT_EQ(code(Json{{field.name, choice}}, field), "");
    if (!field.choices.empty()) {
      EXPECT_EQ(code(Json{{field.name, "surely not"}}, field), "unsupported_value");
    }
    if ((field.types & kArray) && field.max < 1e6) {
      EXPECT_EQ(code(Json{{field.name, Json(std::vector<int>(static_cast<size_t>(field.max), 1))}}, field), "") << field.name;
      EXPECT_EQ(code(Json{{field.name, Json(std::vector<int>(static_cast<size_t>(field.max) + 1, 1))}}, field), "out_of_range") << field.name;
    }
  }
}

TEST_P(Table, RequiredFieldsAreMissed) {
  Json body = Json::object();
  for (const Field& field : table())
    if (field.required) {
      const auto error = check_fields(body, table());
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code, "missing_field");
    }
  body["something_new"] = 5;
  if (GetParam() == 4) {
    EXPECT_FALSE(check_fields(body, table()));
  }
}

INSTANTIATE_TEST_SUITE_P(Fields, Table, ::testing::Range(0, 5));

TEST(Fields, IntegralFloatsAreIntegers) {
  EXPECT_EQ(as_integer(Json(5.0)), 5);
  EXPECT_EQ(as_integer(Json(-9007199254740992.0)), -9007199254740992);
  EXPECT_FALSE(as_integer(Json(-9223372036854775808.0))) << "which integer was written is lost";
  EXPECT_FALSE(as_integer(Json::parse("-9223372036854775809")));
  EXPECT_EQ(as_integer(Json::parse("-9223372036854775808")), INT64_MIN);
  EXPECT_FALSE(as_integer(Json(9223372036854775808.0)));
  EXPECT_FALSE(as_integer(Json("5")));
}

}  // namespace
}  // namespace turbo::server
