// Package demo shows what the product is for, without a key and without a network.
package demo
