# A Lambda function from a zip file, with a URL that streams.
#   tealight pack model.gguf -o bootstrap && tools/zip bootstrap -o function.zip
#   terraform -chdir=deploy/lambda init && terraform -chdir=deploy/lambda apply

terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.30"
    }
  }
}

variable "zip" {
  description = "File that tools/zip has made"
  default     = "../../function.zip"
}

variable "bucket" {
  description = "S3 bucket for files of more than 50 MB; empty: direct upload"
  default     = ""
}

variable "architecture" {
  description = "arm64 or x86_64, as the file is"
  default     = "arm64"
}

variable "memory_mb" {
  description = "1769 is one vCPU"
  default     = 1769
}

resource "aws_iam_role" "model" {
  name_prefix = "model-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "lambda.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "logs" {
  role       = aws_iam_role.model.name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
}

resource "aws_s3_object" "zip" {
  count       = var.bucket == "" ? 0 : 1
  bucket      = var.bucket
  key         = "model-${filesha256(var.zip)}.zip"
  source      = var.zip
  source_hash = filesha256(var.zip)
}

resource "aws_lambda_function" "model" {
  function_name    = "model"
  role             = aws_iam_role.model.arn
  runtime          = "provided.al2023"
  handler          = "bootstrap"
  architectures    = [var.architecture]
  memory_size      = var.memory_mb
  timeout          = 60
  filename         = var.bucket == "" ? var.zip : null
  s3_bucket        = var.bucket == "" ? null : var.bucket
  s3_key           = var.bucket == "" ? null : aws_s3_object.zip[0].key
  source_code_hash = filebase64sha256(var.zip)

  environment {
    variables = {
      TEALIGHT_INVOKE_MODE = "response_stream" # must agree with invoke_mode
    }
  }

  logging_config {
    log_format = "JSON"
  }
}

resource "aws_lambda_function_url" "model" {
  function_name      = aws_lambda_function.model.function_name
  authorization_type = "AWS_IAM"
  invoke_mode        = "RESPONSE_STREAM"
}

output "url" {
  value = aws_lambda_function_url.model.function_url
}
